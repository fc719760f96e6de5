"""Every option of the command explains itself, and a JSON schema is given as a file, as text or as a mapping."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlstep import EngineConfig, SamplingParams
from dlstep.cli.generate import parser
from dlstep.cli.options import OF_STRATEGY, sampling_params
from dlstep.engine.option_help import field_help

SCHEMA = {"type": "object", "properties": {"shells": {"type": "integer"}, "é": {"enum": ["\U0001f41a", "b"]}}}


def test_every_option_has_a_help_text() -> None:
    texts = field_help(EngineConfig)
    assert all(text for name, text in texts.items() if name not in OF_STRATEGY)
    assert all(field_help(SamplingParams).values())


def params_of(*arguments: str) -> SamplingParams:
    return sampling_params(parser().parse_args(["a prompt", *arguments]))


@pytest.mark.parametrize("mark", ["", "\ufeff", "\n"])
def test_a_schema_is_a_file_or_a_text(tmp_path: Path, mark: str) -> None:
    (path := tmp_path / "schema.json").write_text(mark + json.dumps(SCHEMA, ensure_ascii=bool(mark)), encoding="utf-8")
    expected = SamplingParams(json_schema=json.dumps(SCHEMA))
    assert params_of("--json_schema", str(path)) == expected
    assert params_of("--json_schema", json.dumps(SCHEMA, indent=1)) == expected


@pytest.mark.parametrize("given", [SCHEMA, json.dumps(SCHEMA), "schema.json"])
def test_an_option_file_holds_a_schema_as_a_mapping_or_as_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text(json.dumps(SCHEMA))
    Path("options.yaml").write_text(yaml.safe_dump({"json_schema": given}, sort_keys=False))
    assert params_of("--config", "options.yaml") == SamplingParams(json_schema=json.dumps(SCHEMA))


def test_one_choice_needs_no_brackets() -> None:
    assert params_of("--choice", "92 shells").choice == ("92 shells",)
    assert params_of("--choice+", "92", "--choice+", "93 shells").choice == ("92", "93 shells")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "the file 'schema.json' cannot be read: [Errno 2] No such file"),
        (b"[1]", "it is not an object with keywords"),
        (b"{'a': 1}", "Expecting property name"),
        (b"\xff", "the file 'schema.json' cannot be read: 'utf-8' codec"),
        (b"[" * 100_000, "maximum recursion depth"),
    ],
)
def test_a_file_without_a_schema_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("schema.json").write_bytes(content)
    with pytest.raises(ValueError, match="json_schema") as caught:
        params_of("--json_schema", "schema.json")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [".", '{"type": ', "", "3", "a\0b"])
def test_a_text_that_is_neither_is_refused_in_one_sentence(given: str) -> None:
    with pytest.raises(ValueError, match="json_schema") as caught:
        params_of("--json_schema", given)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
