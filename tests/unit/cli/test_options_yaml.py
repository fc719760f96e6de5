"""YAML files of options: what would run code, import a module, or grow without bound is refused with one sentence."""

import shlex
import sys
import time

import pytest

from dlstep.cli import main
from dlstep.cli.options import load

MARK = "\nfrom pathlib import Path\nPath({mark!r}).write_text('was here')\nSTRATEGY = print\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("stop: " + "[" * 5000 + "]" * 5000, "is no YAML of options: maximum recursion depth"),
        ("{a: " * 3000 + "1" + "}" * 3000, "is no YAML of options: maximum recursion depth"),
        ("stop: !!python/object/apply:planted.run [1]", "could not determine a constructor for the tag"),
        ("!!python/object/new:planted.Run {}", "could not determine a constructor for the tag"),
        ("stop: !!python/name:planted.run", "could not determine a constructor for the tag"),
        ("!!python/module:planted", "could not determine a constructor for the tag"),
        ("decoding_strategy: planted", "decoding strategy 'planted' is unknown"),
        ("decoding_strategy: inside.planted", "give it on the command line, as --decoding_strategy inside.planted"),
        (
            "base: &a {decoding_strategy: inside.planted}\n<<: *a",
            "give it on the command line, as --decoding_strategy inside.planted",
        ),
        ("<<: {decoding_strategy: inside.planted}", "give it on the command line, as --decoding_strategy inside.planted"),
        ("decoding_strategy: {class_path: planted.Run}", "error: --decoding_strategy: "),
        ("class_path: planted.Run", "class_path"),
        ("{{{", "is no YAML of options"),
    ],
)
def test_a_file_of_options_is_refused_in_time(text, message, tmp_path, failure, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    mark = tmp_path / "mark"
    (tmp_path / "inside").mkdir()
    for place in ("planted.py", "inside/planted.py", "inside/__init__.py"):
        (tmp_path / place).write_text(MARK.format(mark=str(mark)))
    (tmp_path / "options.yaml").write_text(text)
    begun = time.monotonic()
    assert message in failure(f"generate Hello --config {tmp_path}/options.yaml")
    assert time.monotonic() - begun < 20
    assert not mark.exists()
    assert not {"planted", "inside", "inside.planted"} & set(sys.modules)


def test_options_are_printed_as_a_file_that_is_read_again(tmp_path, capsys):
    def printed(options):
        with pytest.raises(SystemExit, match="0"):
            main([*shlex.split(f"generate {options}"), "--print_config"])
        return capsys.readouterr().out

    text = printed("Hello --rule quota --steps_per_block 3 --stop \"[a, 'b: c']\" --temperature 1")
    (tmp_path / "options.yaml").write_text(text)
    assert printed(f"--config {tmp_path}/options.yaml") == text
    assert load(text)["stop"] == ["a", "b: c"] and load(text)["temperature"] == 1.0 and load(text)["prompts"] == ["Hello"]


def test_plain_values_are_read():
    text = "max_tokens: 4\ntemperature: 1e-1\nstop: ['a: b', \"c\"]\nmodel:\nseed: 0x10\nignore_eos: true\n"
    assert load(text) == {
        "max_tokens": 4,
        "temperature": 0.1,
        "stop": ["a: b", "c"],
        "model": None,
        "seed": 16,
        "ignore_eos": True,
    }
