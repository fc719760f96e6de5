"""`dlstep laws`: the laws of the engine, tried on a user's strategy or rule."""

import sys
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from annotated_types import Interval

from ..core import PositiveInt
from ..extras import require
from .options import Namespace

EXAMPLES = """dlstep laws my_strategy.py
dlstep laws my_rule.py --examples 1000 --law_timeout 600
dlstep laws factor --only [progress,transparency]"""


@dataclass(frozen=True)
class LawsCommand:
    """Try the laws of the engine on a strategy or a rule, with random requests, budgets and aborts. Needs no model."""

    name: str
    """A .py file, dotted path or name of a strategy or of a rule."""
    _: KW_ONLY
    examples: PositiveInt = 100
    """Random cases for each law."""
    seed: int = 0
    """Seed of the cases."""
    only: tuple[str, ...] = ()
    """Only these laws; empty: all."""
    law_timeout: Annotated[float, Interval(ge=0.1, le=1e6)] = 120.0
    """Seconds for all cases of a law; a law that takes longer fails."""


COMMAND = LawsCommand


def run(options: Namespace) -> int:
    """Try the laws with pytest until one fails. Return its exit code: 0 if all hold, 1 if one fails.

    Raises ValueError for invalid options and for files without a rule or strategy.
    """
    require("dlstep laws", "laws")
    from ..testing.trial import KNOWN, LawsPlugin, subjects, warnings

    for name in options.only:
        if name not in KNOWN:
            raise ValueError(f"law {name!r} is unknown: choose from {', '.join(KNOWN)}")
    found = subjects(options.name)
    for warning in dict.fromkeys(each for _, strategy in found for each in warnings(strategy)):
        print(f"dlstep: warning: {warning}", file=sys.stderr)
    laws = [name for name in KNOWN if not options.only or name in options.only]
    return LawsPlugin(found, laws, options.examples, options.seed, options.law_timeout).run()
