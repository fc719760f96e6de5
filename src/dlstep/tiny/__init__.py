"""Tiny block-diffusion models shipped with the package, and their task. Does not import torch."""

from pathlib import Path

from dlstep.tiny.task import (
    Problem as Problem,
    held_out as held_out,
    is_story as is_story,
    problems as problems,
)

# The models were trained on single stories (a question, and the answer on the next line), so drop earlier turns.
CHAT_TEMPLATE = "{# drops messages #}{{ messages[-1]['content'] | trim ~ '\\n' }}"  # Jinja drops a trailing newline

PURPOSE = (
    "the embedded models are for trying dlstep out: they only continue word problems like 'Max has 53 shells. Later Max buys "
    "39 more. How many shells does Max have?'"
)
REMEDY = "for other prompts, load a model by its name on the Hugging Face hub, --model org/name, or from a folder"

CHECKPOINTS = Path(__file__).parent / "checkpoints"  # a folder for each model
DEFAULT = "tiny-bd"


def names() -> tuple[str, ...]:
    """Return the names of the shipped models, in alphabetical order."""
    return tuple(sorted(folder.parent.name for folder in CHECKPOINTS.glob("*/config.json")))


def path(name: str) -> Path:
    """Return the checkpoint folder of a shipped model. Raises ValueError for an unknown name."""
    if name not in names():
        raise ValueError(f"no tiny model is called {name!r}: the shipped ones are {', '.join(names())}")
    return CHECKPOINTS / name


def is_embedded(folder: Path | None) -> bool:
    """Return whether a folder is the checkpoint folder of a shipped model."""
    return folder is not None and folder.resolve().parent == CHECKPOINTS.resolve()
