"""Folders with a config.json, and what is read from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlstep import LLM
from dlstep.cli import main
from dlstep.engine.config import engine_config
from dlstep.engine.strategy_choice import strategy_for
from dlstep.models import Description, read_description
from training.model import save_tokenizer

from ...helpers.files import edit

Facts = dict[str, Any]
Captured = pytest.CaptureFixture[str]


def folder_of(folder: Path, facts: Facts, *, mask_token: str | None = None, **changes: object) -> Path:
    """A folder with this config.json and a tokenizer, but no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(facts | changes))
    save_tokenizer(folder)
    edit(folder / "tokenizer_config.json", mask_token=mask_token)
    return folder


def described(folder: Path, facts: Facts, **changes: object) -> Description:
    return read_description(folder_of(folder, facts, **changes))


def strategy_of(description: Description, **options: Any) -> Any:
    """The strategy that a checkpoint is decoded with."""
    return strategy_for(engine_config(options), description)


def told(capsys: Captured, folder: Path, lora_path: Path | None = None) -> list[str]:
    """The problems that the command tells; it ends with 1 if there are any, and says nothing on stderr."""
    arguments = ["models", "check", str(folder), *(["--lora_path", str(lora_path)] if lora_path else [])]
    code = main([*arguments, "--json"])
    out, err = capsys.readouterr()
    problems = json.loads(out)["problems"]
    assert (code, err) == (int(bool(problems)), "")
    assert main(arguments) == code
    out = capsys.readouterr().out
    assert all(f"\n  {problem}" in out for problem in problems)
    return problems


def refused(capsys: Captured, folder: Path, lora_path: Path | None = None) -> Exception:
    """The error of loading a folder, which has the words of the one problem that the command tells."""
    (problem,) = told(capsys, folder, lora_path)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        LLM(folder, device="cpu", lora_path=lora_path and str(lora_path))
    assert problem in str(caught.value)
    return caught.value
