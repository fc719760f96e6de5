"""Decoding strategies, one file each, found by module name. Nothing is registered on import."""

from typing import Any

from ..core import Strategy, with_options
from ..core.options import PluginGroup
from ._blocks import Blocks as Blocks, Blockwise as Blockwise

ALIASES = {"multi_block_diffusion": "multi_bd", "block_diffusion": "multi_bd", "fast_dllm": "multi_bd"}
PLUGINS = PluginGroup("decoding strategy", "STRATEGY", __name__, Strategy, ("rule", "dlstep.rules"), ALIASES)
own, available, is_known, load, name_of = PLUGINS.own, PLUGINS.available, PLUGINS.is_known, PLUGINS.load, PLUGINS.name_of


def make(name: str, **options: Any) -> Strategy:
    """Return the strategy of a name.

    Args:
        name: A name, alias or path, as `load` takes it.
        **options: Options of the strategy and of its rule.

    Raises:
        ValueError: For an unknown name or option, and for a value out of range.
    """
    return with_options(PLUGINS.value(name), options)
