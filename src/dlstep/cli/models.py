"""`dlstep models`: list the supported families of networks, or check a checkpoint."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from . import check
from .inspect import print_wrapped
from .json_text import json_text
from .options import new_parser
from .parser import ArgumentParser, Namespace

if TYPE_CHECKING:
    from ..models import Family

EXAMPLES = "dlstep models\ndlstep models --json\ndlstep models --markdown\ndlstep models check /path/to/checkpoint"
COLUMNS = ("family", "class in transformers", "recognised by", "mask id", "shift", "rule", "block size", "strategies")
PAGE = """\
# Models

dlstep loads Hugging Face checkpoint folders unmodified: it reads the model family from
`config.json`, the weights from safetensors files and the tokenizer from `tokenizer.json`. The
network is the equivalent `transformers` class. Python files in the folder are never run, and
pickled weights are never opened.

A model can be given by the name of its repository on the Hugging Face hub: `LLM("org/name")`,
`--model org/name` and `dlstep models check org/name`, with `@revision` behind the name for a branch,
tag or commit. Only safetensors, tokenizer and configuration files are downloaded, into the hub's
cache; later runs need no network. A hub that does not answer within `HF_HUB_ETAG_TIMEOUT` seconds
(default 10) is an error, unless the cache has the model. `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` work as in
transformers. A folder with the same relative path takes precedence over the hub.

`dlstep models --markdown` prints this page.

{table}

- **recognised by**: a class in `architectures` or `auto_map`, or the `model_type`. Families that
  share these are distinguished by a required tensor, by a field of `config.json` that must be true,
  or by the published name in `_name_or_path` or the folder's name; if several match, the most
  specific one is used. `model_name` overrides all of this.
- **mask id**: taken from the option `mask_token_id`, then from `config.json` (its `dlstep` section
  first) and `generation_config.json`, then the tokenizer's mask token, then a token whose text is
  known for the family. The id in the table is the last choice, used only if the network has it and
  the tokenizer has no other token there. A checkpoint without any of these is refused.
- **ends**: an answer ends at every `eos_token_id` of `config.json` and `generation_config.json`,
  and at the family's end-of-turn tokens.
- **shift**: 1 if row p-1 of the network predicts position p. **rule**: B if every open block
  unmasks a position in every forward pass, A if only blocks after a nearly complete block must do
  so.
- **block size**: the field of `config.json`, and its default. `bd_size` is divided into sub-blocks
  of eight by `fast_dllm_v2`, and is one block elsewhere.
  {thresholds}
- **strategies**: the first is the default. Explicit options override the checkpoint, which
  overrides the family.
- Families named after a `transformers` class are for networks whose decoding is configured in a
  `dlstep` section of `config.json` or by options. An autoregressive network, which has no mask
  token, is refused.
- A family records how its networks were trained: one of the ways that `dlstep strategies --matrix`
  lists. `training` in the `dlstep` section overrides it. Strategies for networks that were trained
  in another way are refused.
- I-DLM has the class of SDAR. dlstep recognises it by `use_regular_causal: true` in `config.json`,
  or by the name I-DLM. Any other I-DLM folder cannot be distinguished from SDAR: load it with
  `model_name="idlm"`. The `block_size` in its `config.json` is the number of masks in a forward
  pass. I-DLM adapters on a plain Qwen3 network are not supported, because they are active only in
  the rows of masks.
- Nemotron-Labs-Diffusion was trained for three ways of decoding: in blocks (`causal_blocks`),
  autoregressively (`autoregressive`), and by drafts that the same network verifies
  (`self_speculation`). The adapter in the checkpoint's folder `linear_spec_lora` only changes
  drafts; give that folder as `--lora_path`. The models with vision are refused.
- LLaDA2.2 (`expert_capacity`, `delete_token_id`, `split_token_id`) and UNO (`use_relay`) have the
  classes of LLaDA2 and SDAR but decode differently. dlstep refuses them by these fields.

Limits apply when a folder is read, so that an untrusted one cannot exhaust memory. A
`tokenizer.json` may contain a BPE or WordLevel model and the components that published tokenizers
of these families use. Normalizers may make a text at most 64 times as long, a template may add at
most 16 special tokens, and regular expressions that can take exponential time are refused. JSON
files may have 64 MiB and 4 million values (8 MiB for special tokens and chat templates); an index
may name 10,000 files. The time that an accepted regular expression takes on a long prompt is not
bounded.

The rotary embedding is read in the old and the new syntax; a missing base is an error. A field of
`config.json` that would change the computation and is not supported is refused, with its name and
value. `dlstep models check` warns about unknown fields.
"""

# Actions besides the list: name, summary, parser factory, function from options to exit code.
KINDS: dict[str, tuple[str, Callable[[], ArgumentParser], Callable[[Namespace], int]]] = {
    "check": ("Describe a checkpoint and report its problems.", check.parser, check.run),
}


def parser() -> ArgumentParser:
    """Return the parser of `dlstep models`, without an action."""
    options = new_parser(
        "dlstep models [options] [ACTION ...]", "List the families of networks, or check a checkpoint.", EXAMPLES
    )
    options.add_argument("--json", action="store_true", help="Print a JSON list, and nothing else, on stdout.")
    options.add_argument("--markdown", action="store_true", help="Print the page about models of the documentation.")
    return options


def run(options: Namespace) -> int:
    """Print the list."""
    rows = family_rows()
    if options.json:
        print(json_text(rows))
    elif options.markdown:
        print(page(rows), end="")
    else:
        print_rows(rows)
    return 0


def family_rows() -> list[dict[str, Any]]:
    """Return all families as JSON data."""
    from ..models import FAMILIES

    return [family_row(family) for family in FAMILIES.values()]


def family_row(family: "Family") -> dict[str, Any]:
    """Return the facts of a family and the strategies that fit it, its default first."""
    from .. import strategies
    from ..engine.compatibility import family_incompatibility

    own = family.decoding_strategy
    able = [name for name in strategies.available() if not family_incompatibility(name, family)]
    return {
        "name": family.name,
        "network": family.network.__name__,
        "classes": list(family.signs.classes),
        "model_types": list(family.signs.model_types),
        "tensor": family.signs.tensor,
        "published": family.signs.published,
        "fact": family.signs.fact,
        "mask_id": family.mask.id if family.mask else None,
        "masked": family.masked,
        "head_shift": family.head_shift,
        "accept_rule": family.accept_rule,
        "block_option": family.block_option,
        "options": dict(family.options),
        "strategies": sorted(able, key=lambda name: name != own),
    }


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row as table cells."""
    signs = [*row["classes"], *(f"model_type {name}" for name in row["model_types"])]
    more = [f"with {row['tensor']}"] if row["tensor"] else []
    more += [f"with {row['fact']}"] if row["fact"] else []
    more += [f"named {row['published']}"] if row["published"] else []
    recognised = "; ".join([", ".join(signs), *more]) if signs else "model_name only"
    size = row["options"].get(row["block_option"])
    masked = "as the folder says" if row["mask_id"] is None else str(row["mask_id"])
    return (
        row["name"],
        row["network"],
        recognised.replace("\\b", "").replace("\\", "").replace("w*", "...").replace("-?", "-"),
        masked if row["masked"] else "none",
        str(row["head_shift"]),
        row["accept_rule"],
        row["block_option"] if size is None else f"{row['block_option']}, {size}",
        ", ".join(row["strategies"]),
    )


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the families. Lines wrap between words only."""
    console = Console()
    for name, network, recognised, mask_id, shift, rule, size, able in map(cells, rows):
        console.print(Text.assemble((name, "bold"), f", {network}"))
        facts = f"mask {mask_id}, shift {shift}, rule {rule}, {size.replace(', ', ' ')}"
        print_wrapped(console, (f"recognised by {recognised}", facts, f"strategies {able}"))


def page(rows: list[dict[str, Any]]) -> str:
    """Return the documentation page about models."""
    listed = [COLUMNS, ("---",) * len(COLUMNS), *map(cells, rows)]
    lines = "\n".join(f"| {' | '.join(line)} |" for line in listed)
    accepts = [(row["name"], row["options"].get("accept_threshold")) for row in rows]
    named = ", ".join(f"`{name}` {value}" for name, value in accepts if value is not None)
    return PAGE.format(table=lines, thresholds=f"Families with a different default `accept_threshold`: {named}.")
