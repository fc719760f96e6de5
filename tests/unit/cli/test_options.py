"""Every option of the command explains itself, and a JSON schema is given as a file, as text or as a mapping."""

import json
from pathlib import Path

import pytest
import yaml

from dlstep import SamplingParams
from dlstep.cli.generate import sampling_params
from dlstep.cli.main import COMMANDS, parser_of

SCHEMA = {"type": "object", "properties": {"shells": {"type": "integer"}, "é": {"enum": ["\U0001f41a", "b"]}}}


def params_of(*arguments):
    return sampling_params(parser_of("generate").parse_args(["a prompt", *arguments]))


@pytest.mark.parametrize("mark", ["", "\ufeff", "\n"])
def test_a_schema_is_a_file_or_a_text(tmp_path, mark):
    (path := tmp_path / "schema.json").write_text(mark + json.dumps(SCHEMA, ensure_ascii=bool(mark)))
    expected = SamplingParams(json_schema=json.dumps(SCHEMA))
    assert params_of("--json_schema", str(path)) == expected
    assert params_of("--json_schema", json.dumps(SCHEMA, indent=1)) == expected


@pytest.mark.parametrize("text", ['root ::= "a"', 'start: "a"', 'start:\n  "a"'])
def test_a_grammar_is_given_as_a_file_or_as_text(tmp_path, text):
    path = tmp_path / "list.gbnf"
    path.write_text(text)
    assert params_of("--grammar", str(path)) == params_of("--grammar", text) == SamplingParams(grammar=text)
    with pytest.raises(ValueError, match=r"grammar: it takes a text or the path of a file; the file 'no\.gbnf' cannot be read"):
        params_of("--grammar", "no.gbnf")


@pytest.mark.parametrize("given", [SCHEMA, json.dumps(SCHEMA), "schema.json"])
def test_an_option_file_holds_a_schema_as_a_mapping_or_as_these(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text(json.dumps(SCHEMA))
    Path("options.yaml").write_text(yaml.safe_dump({"json_schema": given}, sort_keys=False))
    assert params_of("--config", "options.yaml") == SamplingParams(json_schema=json.dumps(SCHEMA))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_default_of_a_list_is_what_the_same_list_gives(command):
    for action in parser_of(command)._actions:
        if getattr(action, "wraps", False):
            assert action.read(json.dumps(action.default), loaded=False) == action.default, action.dest
