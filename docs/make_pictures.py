"""Draw how every rule fills in one story, and write all that `make pictures` keeps up to date.

It writes the pictures, the rules' pages, and the tables of rules and of families of models.

`python docs/make_pictures.py quota saber` draws these rules only. Nothing is random: the same code gives the same files.
"""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlstep import LLM, SamplingParams, Trace, tiny
from dlstep.cli.models import cells, family_rows
from dlstep.cli.rules import rule_row
from dlstep.core import Rule, with_options
from dlstep.core.options import options_of
from dlstep.evaluate.comparing import CARRIERS, suited_options
from dlstep.rules import PLUGINS, own
from dlstep.text.words import counted
from dlstep.views import filling_picture

FOLDER = Path(__file__).parent
MODELS = FOLDER / "models.md"
PAGES, PICTURES = FOLDER / "strategies", FOLDER / "strategies" / "pictures"
INDEX = PAGES / "index.md"
BEGIN, END, BY_HAND = "<!-- {} -->\n", "<!-- end of {} -->\n", "## Five rows by hand\n"
STORY = tiny.problems(1, seed=14)[0]
MAX_TOKENS, BLOCK_SIZE = 32, 8
WORDS = {"multi_bd": "on a grid", "dual_cache": "on a canvas"}
# In a dark page, all colours are inverted but for their hue.
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(0.92) hue-rotate(180deg) } }"
# Where the default says little about an answer of 25 tokens in blocks of 8.
OPTIONS: dict[str, dict[str, Any]] = {
    "quota": {"steps_per_block": 3},
    "running_confidence": {"steps_per_block": 5},
    "sliding": {"window": 6},
}


def drawn_rule(name: str) -> Rule:
    """The rule as it is drawn."""
    rule = with_options(PLUGINS.value(name), OPTIONS.get(name, {}))
    return with_options(rule, suited_options(rule, BLOCK_SIZE))


def trace(rule: Rule, carrier: str) -> Trace:
    """The decode of the story by the embedded model of a carrier."""
    cache: dict[str, Any] = {"cache": "none"} if carrier == "dual_cache" else {}
    session = LLM(decoding_strategy=carrier, rule=rule, num_threads=1, **cache).session()
    session.submit(STORY.prompt, SamplingParams(max_tokens=MAX_TOKENS))
    session.run()
    return session.trace


def pictures(row: dict[str, Any]) -> dict[str, str]:
    """The decodes of a rule by file name, one for each carrier that it goes with."""
    rule, found = drawn_rule(row["name"]), dict[str, str]()
    for carrier in CARRIERS:
        if carrier in row["carriers"]:
            decode = trace(rule, carrier)
            (answer,) = decode.state.finished.values()
            counts = f"{counted(len(answer.answer), 'token')}, {counted(answer.steps, 'forward pass')}"
            svg = filling_picture(decode, f"{row['name']} {WORDS[carrier]}: {counts}")._repr_svg_()
            found[file_name(row, carrier)] = svg.replace("<defs>", f"<style>{DARK}</style>\n <defs>", 1)
    return found


def file_name(row: dict[str, Any], carrier: str) -> str:
    """The name of the picture of a rule with a carrier."""
    return f"{row['name']}_{WORDS[carrier].split()[-1]}.svg"


def section(row: dict[str, Any]) -> str:
    """The text of a page about its picture."""
    name = row["name"]
    rule, default = options_of(drawn_rule(name)), options_of(PLUGINS.value(name))
    changed = ", ".join(f"`{option}={value}`" for option, value in rule.items() if value != default[option])
    models = {"multi_bd": "`tiny-bd` with `multi_bd`", "dual_cache": '`tiny-llada` with `dual_cache`, `cache="none"`'}
    drawn = [models[carrier] for carrier in CARRIERS if carrier in row["carriers"]]
    lines = (
        "## A story, pass by pass\n",
        *(
            f"![{name} {WORDS[carrier]}: which forward pass unmasked which position](pictures/{file_name(row, carrier)})\n"
            for carrier in CARRIERS
            if carrier in row["carriers"]
        ),
        f"Decoded by {' and by '.join(drawn)},",
        f"with {changed or 'default options'}.",
    )
    return "\n".join(lines) + "\n"


def replaced(text: str, name: str, content: str) -> str:
    """The text with `content` between the marks of `name`. Raises ValueError if there are none."""
    before, begin, rest = text.partition(BEGIN.format(name))
    _, end, after = rest.partition(END.format(name))
    if not begin or not end:
        raise ValueError(f"no marks of {name!r} in the text")
    return f"{before}{begin}{content}{end}{after}"


def page(text: str, row: dict[str, Any]) -> str:
    """A rule's page with its picture, in front of the rows by hand where it had none."""
    if BEGIN.format("picture") not in text:
        marks = BEGIN.format("picture") + END.format("picture")
        text = text.replace(BY_HAND, f"{marks}\n{BY_HAND}", 1)
    return replaced(text, "picture", section(row))


COLUMNS = ("family", "class in transformers", "recognised by", "mask id", "shift", "block size", "strategies")
# "Title" (other words), 2025, arXiv 2505.22618; or one word instead of the title.
_PAPER = re.compile(r'(?:"([^"]+)"(?: \([^)]*\))?|([\w.-]+)), (20\d\d), arXiv (\d{4}\.\d{5})')


@dataclass(frozen=True, slots=True)
class Paper:
    """The source of a rule."""

    title: str
    year: int
    arxiv: str


def papers(source: str) -> tuple[Paper, ...]:
    """The papers that a text cites with year and arXiv number."""
    return tuple(Paper(title or word, int(year), number) for title, word, year, number in _PAPER.findall(source))


def table(*lines: Iterable[str]) -> str:
    """A Markdown table."""
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def rules_table(rows: list[dict[str, Any]]) -> str:
    """The table of rules of `strategies/index.md`; links are relative to that page."""
    lines = [("rule", "idea", "from", "goes with"), ("---",) * 4]
    for row in rows:
        linked = [
            f"{paper.title}, {paper.year}, [arXiv {paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})"
            for paper in papers(row["source"])
        ]
        carried = ", ".join(f"`{carrier}`" for carrier in row["carriers"])
        lines.append(
            (f"[`{row['name']}`]({row['name']}.md)", row["summary"].rstrip("."), "; ".join(linked) or row["source"], carried)
        )
    return table(*lines)


def families_table() -> str:
    """The table of families of `models.md`."""
    return table(COLUMNS, ("---",) * len(COLUMNS), *map(cells, family_rows()))


def main() -> None:
    """Write the pictures, the pages and the table of rules."""
    rows = [*map(rule_row, own())]
    PICTURES.mkdir(exist_ok=True)
    for row in rows:
        if len(sys.argv) > 1 and row["name"] not in sys.argv[1:]:
            continue
        path = PAGES / f"{row['name']}.md"
        made = pictures(row)
        for name, svg in made.items():
            (PICTURES / name).write_text(svg, encoding="utf-8")
        path.write_text(page(path.read_text(encoding="utf-8"), row), encoding="utf-8")
        print(f"{row['name']}: {', '.join(f'{len(svg)} bytes' for svg in made.values())}")
    INDEX.write_text(replaced(INDEX.read_text(encoding="utf-8"), "zoo", rules_table(rows)), encoding="utf-8")
    MODELS.write_text(replaced(MODELS.read_text(encoding="utf-8"), "families", families_table()), encoding="utf-8")


if __name__ == "__main__":
    main()
