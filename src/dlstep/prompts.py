"""How prompts come in: text, token ids, arrays of ids, one of them or many."""

from collections.abc import Mapping, Sequence as Items
from reprlib import repr as short
from typing import Any, cast

from .core.checks import plain
from .engine import Engine
from .output import Prompt


def encode(engine: Engine, prompt: Prompt) -> tuple[int, ...]:
    """The tokens of a prompt that is text or tokens already. Raises ValueError for anything else."""
    given: Any = plain(prompt)
    if isinstance(given, list | tuple):
        ids = cast(Items[Any], given)
        wrong = next((part for part in ids if type(plain(part)) is not int), None)
        if wrong is not None:
            raise ValueError(f"a prompt of token ids holds whole numbers only, this one holds {short(wrong)}")
        return tuple([plain(part) for part in ids])
    if not isinstance(given, str):
        raise ValueError(f"a prompt must be text or a list of token ids, got {short(prompt)}")
    if engine.tokenizer is None:
        raise ValueError(f"the prompt {short(given)} is text and the engine has no tokenizer: give token ids")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the prompt {short(given)} is no valid text: {error.reason} at {error.start}") from error
    end = "" if not given or given.endswith(engine.prompt_end) else engine.prompt_end
    return tuple(engine.tokenizer.encode(given + end))


def as_list(prompts: Prompt | Items[Prompt]) -> list[Prompt]:
    """One prompt or many as a list: text is one prompt, and so are whole numbers and a 1-D array of them."""
    given: Any = plain(prompts)
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping | bytes | bytearray) or not hasattr(given, "__iter__"):
        raise ValueError(f"prompts must be text, token ids, or a list of such prompts, got {short(prompts)}")
    many = [plain(part) for part in given]
    numbers = sum(isinstance(part, int | float) for part in many)
    if many and numbers == len(many):
        return [many]
    if numbers:
        raise ValueError("prompts mixes token ids and whole prompts: give one list of ids, or a list of prompts")
    return many
