"""Decoding strategies, one file each. The module name is the key: no registry, no import side effect."""

from typing import Any

from ..core import Strategy, with_options
from ..core.plugins import Shelf
from ._blocks import Blocks as Blocks, Blockwise as Blockwise

ALIASES = {"multi_block_diffusion": "multi_bd", "block_diffusion": "multi_bd", "fast_dllm": "multi_bd"}
SHELF = Shelf("decoding strategy", "STRATEGY", Strategy, __name__, ALIASES)
own, available, is_known, load, name_of = SHELF.own, SHELF.available, SHELF.is_known, SHELF.load, SHELF.name_of


def make(name: str, **options: Any) -> Strategy:
    """The strategy of this name with options by their flat names, those of its rule included.

    Raises ValueError for an unknown name, an option that it does not have, or a value out of range.
    """
    return with_options(SHELF.value(name), options)
