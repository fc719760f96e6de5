"""`dlstep models`: list the supported families of networks."""

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ..core import Json
from .options import Namespace, json_text
from .strategies import print_wrapped

if TYPE_CHECKING:
    from ..models import Family

EXAMPLES = "dlstep models\ndlstep models --json\ndlstep models check /path/to/checkpoint"


@dataclass(frozen=True, kw_only=True)
class ModelsCommand:
    """List the families of networks."""

    json: bool = False
    """Print a JSON list, and nothing else, on stdout."""


COMMAND = ModelsCommand


def run(options: Namespace) -> int:
    """Print the list. Lines wrap between words only."""
    rows = family_rows()
    if options.json:
        print(json_text(rows))
        return 0
    console = Console()
    for name, network, recognised, mask_id, shift, size, able in map(cells, rows):
        console.print(Text.assemble((name, "bold"), f", {network}"))
        facts = f"mask {mask_id}, shift {shift}, {size.replace(', ', ' ')}"
        print_wrapped(console, (f"recognised by {recognised}", facts, f"strategies {able}"))
    return 0


def family_rows() -> list[Json]:
    """Return all families as JSON data."""
    from ..models.families import PLUGINS

    return [family_row(family) for family in PLUGINS.values()]


def family_row(family: "Family") -> Json:
    """Return the facts of a family and the strategies that fit it, its default first."""
    from .. import strategies
    from ..engine.compatibility import refusal_of_family

    own = family.decoding_strategy
    able = [name for name in strategies.available() if not refusal_of_family(name, family)]
    return {
        **{name: getattr(family, name) for name in ("name", "masked", "head_shift", "accept_rule", "block_option", "training")},
        **asdict(family.signs),
        "network": family.network.__name__,
        "mask_id": family.mask.id if family.mask else None,
        "options": dict(family.options),
        "strategies": sorted(able, key=lambda name: name != own),
    }


def cells(row: Json) -> tuple[str, ...]:
    """Return a row as table cells."""
    signs = [*row["classes"], *(f"model_type {name}" for name in row["model_types"])]
    more = [f"{word} {row[sign]}" for sign, word in (("tensor", "with"), ("fact", "with"), ("published", "named")) if row[sign]]
    recognised = "; ".join([", ".join(signs), *more]) if signs else "the option family only"
    size = row["options"].get(row["block_option"])
    masked = "stated" if row["mask_id"] is None else str(row["mask_id"])
    return (
        row["name"],
        row["network"],
        re.sub(r"\\w[*+]", "...", recognised).replace("\\b", "").replace("\\", "").replace("-?", "-"),
        masked if row["masked"] else "none",
        str(row["head_shift"]),
        row["block_option"] if size is None else f"{row['block_option']}, {size}",
        ", ".join(row["strategies"]) if row["training"] else "stated",
    )
