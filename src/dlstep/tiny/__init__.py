"""Tiny block-diffusion models that ship with the package, and the task they solve.

Importing this package loads neither torch nor transformers.
"""

from pathlib import Path

from dlstep.tiny.task import Problem as Problem, Score as Score, held_out as held_out, problems as problems, score as score

# They were trained on single stories, a question and its answer on the next line: earlier turns are left out.
CHAT_TEMPLATE = "{{ messages[-1]['content'] | trim ~ '\\n' }}"  # Jinja drops a newline at the end of a template

_CHECKPOINTS = Path(__file__).parent / "checkpoints"


def names() -> tuple[str, ...]:
    """Names of the shipped models, in alphabetical order."""
    return tuple(sorted(folder.parent.name for folder in _CHECKPOINTS.glob("*/config.json")))


def path(name: str) -> Path:
    """The checkpoint folder of a shipped model, ready for `from_pretrained`.

    Raises ValueError, naming the known models, for another name.
    """
    if name not in names():
        raise ValueError(f"no tiny model is called {name!r}: the shipped ones are {', '.join(names())}")
    return _CHECKPOINTS / name
