"""Tiny block-diffusion models shipped with the package, and their task. Loads no torch."""

from pathlib import Path

from dlstep.tiny.task import Problem as Problem, Score as Score, held_out as held_out, problems as problems, score as score

# Trained on single stories (a question, and the answer on the next line): drop earlier turns.
CHAT_TEMPLATE = "{{ messages[-1]['content'] | trim ~ '\\n' }}"  # Jinja drops a trailing newline

_CHECKPOINTS = Path(__file__).parent / "checkpoints"


def names() -> tuple[str, ...]:
    """Return the names of the shipped models, in alphabetical order."""
    return tuple(sorted(folder.parent.name for folder in _CHECKPOINTS.glob("*/config.json")))


def path(name: str) -> Path:
    """Return the checkpoint folder of a shipped model. Raises ValueError for an unknown name."""
    if name not in names():
        raise ValueError(f"no tiny model is called {name!r}: the shipped ones are {', '.join(names())}")
    return _CHECKPOINTS / name
