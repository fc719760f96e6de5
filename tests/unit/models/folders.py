"""Folders with a config.json, and what is read from them."""

import json
from pathlib import Path
from typing import Any

from dlstep.engine.config import build, engine_config, resolve
from dlstep.models import Description, read_description
from training.model import save_tokenizer

Facts = dict[str, Any]


def edit(path: Path, **changes: object) -> None:
    facts = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(facts | changes))


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
    return build(resolve(engine_config(options), description), description.spec)[1]
