"""Draw the README's moving picture, one story decoded by three rules: `make moving-picture`.

The third rule is the class in the README. Nothing is random: the same code gives the same file.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from dlstep import LLM, SamplingParams, Trace, tiny
from dlstep.core import Rule
from dlstep.text.words import piece
from dlstep.views import stays

FOLDER = Path(__file__).parent
README, PICTURE = FOLDER.parent / "README.md", FOLDER / "moving_picture.svg"
STORY = tiny.problems(29, seed=12)[28]  # held out; all three rules get every equation right

LEAD, PASS, HOLD, FADE = 1.0, 0.55, 3.5, 0.5  # seconds: before the first pass, each pass, after the last, back to masks
WIDTH, MARGIN, LETTER, PADDING, GAP = 760, 22, 9, 3, 9  # pixels; GAP is between blocks
CELL, LANE, TOP = 26, 80, 84
BINS = (0.5, 0.7, 0.9, 0.99)  # bounds of the colours
STYLE = """
text,.p{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.m{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.n{font-weight:600;font-size:14px}.d{fill:#59636e}.r{text-anchor:end}.w{font-size:15px;text-anchor:middle;white-space:pre}
.paper{fill:#fff;stroke:#d1d9e0}.mask{fill:#e6eaef}.open{fill:#0969da;fill-opacity:.1;stroke:#0969da;stroke-width:1.5;opacity:0}
.c0{fill:#ffb366}.c1{fill:#ffd9a8}.c2{fill:#f3ead7}.c3{fill:#c5e0fb}.c4{fill:#8cc2f7}
.s,.k{animation:0s infinite}.s{transform-box:fill-box;transform-origin:center}.k{animation-timing-function:step-end}
.k:not(.l){opacity:0}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.d{fill:#9198a1}.paper{fill:#0d1117;stroke:#3d444d}.mask{fill:#262c36}
.open{fill:#4493f8;stroke:#4493f8}.c0{fill:#a8540c}.c1{fill:#74471b}.c2{fill:#4a4437}.c3{fill:#1f4470}.c4{fill:#1a64b8}}
@media(prefers-reduced-motion:reduce){.s,.k{animation:none!important}}
""".strip()


@dataclass(frozen=True, slots=True)
class Lane:
    """A rule with its options, as the picture names it."""

    name: str
    idea: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fill:
    """A position of the answer: its text, the forward pass that unmasked it, and its probability then."""

    text: str
    since: int
    probability: float


def rule_of_readme() -> type[Rule]:
    """Return the rule that is defined in the README. The rest of its code block is not run."""
    (code,) = re.findall(r"```python\n((?:(?!```).)*\(Choice\):.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    tree = ast.parse(code)
    kept = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(ast.Module(kept, []), "README.md", "exec"), names)
    (name,) = [node.name for node in kept if isinstance(node, ast.ClassDef)]
    return names[name]


def lanes() -> list[Lane]:
    """Return what is drawn, the slowest first."""
    own = rule_of_readme()
    return [
        Lane("quota", "two tokens in every forward pass", {"rule": "quota", "steps_per_block": 4, "buffer_size": 1}),
        Lane("threshold", "every token above 0.9", {"rule": "threshold", "accept_threshold": 0.9, "buffer_size": 4}),
        Lane(own.__name__, "your own, in a dozen lines", {"rule": own, "buffer_size": 4}),
    ]


def decoded(lane: Lane) -> Trace:
    """Return the decode of the story by the embedded model."""
    session = LLM(num_threads=1, **lane.options).session()
    session.submit(STORY.prompt, SamplingParams(max_tokens=64))
    session.run()
    return session.trace


def fills(trace: Trace) -> list[Fill]:
    """Return the positions of the answer in order. No rule here replaces a token."""
    (sequence,) = trace.state.finished.values()
    spec, start, answer = trace.first.config.spec, len(sequence.request.prompt), sequence.answer
    chances = {
        block.start + index: chance
        for block in (*sequence.progress.past, *sequence.progress.window)
        for index, chance in enumerate(block.probabilities)
    }
    since = {stay.offset: stay.since for stay in stays(trace)}
    texts = [piece(spec, token) for token in answer]
    return [Fill(text, since[offset], chances[start + offset]) for offset, text in enumerate(texts)]


def blocks(trace: Trace, count: int) -> list[tuple[int, int, int, int]]:
    """Return first and last offset of each block of the answer, and the passes before and after which it is open."""
    spans: dict[int, tuple[int, int, int, int]] = {}
    for state in trace.states():
        if (sequence := state.find(0)) is None:
            continue
        start = len(sequence.request.prompt)
        for block in sequence.progress.window:
            first, last = max(block.start - start, 0), min(block.start + len(block.tokens) - start, count) - 1
            if last >= first:
                opened = spans[first][2] if first in spans else sequence.steps
                spans[first] = (first, last, opened, sequence.steps + bool(block.masked))
    return [spans[first] for first in sorted(spans)]


class Clock:
    """The times of a picture, as rules of its style sheet, each written once."""

    def __init__(self, passes: int) -> None:
        self.length = LEAD + passes * PASS + HOLD
        self.rules: dict[str, str] = {}

    def percent(self, number: int, later: float = 0.0) -> str:
        """Return the time at which forward pass `number` ends."""
        return f"{100 * (LEAD + number * PASS + later) / self.length:.4g}%"

    def reveal(self, number: int) -> str:
        """Return the class of what appears with a forward pass and stays."""
        hidden, end = "{opacity:0;transform:scale(.7)}", 100 * (1 - FADE / self.length)
        shown = f"{self.percent(number, 0.18)},{end:.4g}%{{opacity:1;transform:none}}"
        return self._rule(f"s{number}", f"0%,{self.percent(number)}{hidden}{shown}100%{{opacity:0}}")

    def between(self, first: int, last: int | None) -> str:
        """Return the class of what is shown from the end of one forward pass to that of another, or to the end."""
        start = f"0%{{opacity:{int(not first)}}}{self.percent(first)}{{opacity:1}}"
        stop = "" if last is None else f"{self.percent(last)}{{opacity:0}}"
        return self._rule(f"k{first}-{'' if last is None else last}", f"{start}{stop}100%{{opacity:{int(last is None)}}}")

    def _rule(self, name: str, frames: str) -> str:
        self.rules[name] = (
            f".{name}{{animation-name:{name};animation-duration:{self.length:.4g}s}}@keyframes {name}{{{frames}}}"
        )
        return f"{name[0]} {name}"


def colour(probability: float) -> str:
    """Return the class of a probability."""
    return f"c{sum(probability >= bound for bound in BINS)}"


def lane_lines(lane: Lane, trace: Trace, clock: Clock, top: int) -> Iterator[str]:
    """Yield the elements of a lane: its name, counters, blocks, masks and tokens."""
    found = fills(trace)
    (sequence,) = trace.state.finished.values()
    yield f'<text class="n m" x="{MARGIN}" y="{top}">{lane.name}<tspan class="d p" dx="10">{lane.idea}</tspan></text>'
    for number in range(sequence.steps + 1):
        ended = number == sequence.steps
        known = sum(fill.since <= number for fill in found)
        rate = f" · {known / number:.2f} tokens per pass" if number else ""
        shown = clock.between(number, None if ended else number + 1) + (" l n" if ended else "")
        passes = f"{number} forward passes" if ended else f"forward pass {number}"
        yield f'<text class="r {shown}" x="{WIDTH - MARGIN}" y="{top}">{passes}{rate}</text>'
    x, top = MARGIN, top + 12
    for first, last, opened, sealed in blocks(trace, len(found)):
        widths = [LETTER * len(fill.text) + PADDING for fill in found[first : last + 1]]
        frame = f'x="{x - 3}" y="{top - 3}" width="{sum(widths) + 5}" height="{CELL + 6}" rx="6"'
        yield f'<rect class="open {clock.between(opened, sealed)}" {frame}/>'
        for fill, width in zip(found[first : last + 1], widths, strict=True):
            box = f'x="{x}" y="{top}" width="{width - 1}" height="{CELL}" rx="3"'
            text = f'<text class="w m" x="{x + (width - 1) / 2:g}" y="{top + 18}">{escape(fill.text)}</text>'
            token = f'<g class="{clock.reveal(fill.since)}"><rect class="{colour(fill.probability)}" {box}/>{text}</g>'
            yield f'<rect class="mask" {box}/>{token}'
            x += width
        x += GAP


def legend(top: int) -> Iterator[str]:
    """Yield the meaning of the colours."""

    def box(kind: str, x: int, width: int, more: str = "") -> str:
        return f'<rect class="{kind}" x="{x}" y="{top}" width="{width}" height="14"{more}/>'

    def text(x: int, words: str, more: str = "") -> str:
        return f'<text class="d{more}" x="{x}" y="{top + 12}">{words}</text>'

    yield box("mask", MARGIN, 16, ' rx="3"') + text(MARGIN + 23, "masked")
    yield box("open", MARGIN + 96, 16, ' rx="3" style="opacity:1"') + text(MARGIN + 119, "open block")
    right, width = WIDTH - MARGIN - 34, 20
    yield text(WIDTH - MARGIN, "high", " r")
    for number in range(len(BINS) + 1):
        yield box(f"c{number}", right - (len(BINS) + 1 - number) * width, width)
    yield text(right - (len(BINS) + 1) * width - 8, "probability when unmasked: low", " r")


def picture() -> str:
    """Return the moving picture."""
    drawn = [(lane, decoded(lane)) for lane in lanes()]
    clock = Clock(max(sequence.steps for _, trace in drawn for sequence in trace.state.finished.values()))
    facts, how_many, question = STORY.prompt.strip().partition("How many")
    lines = (facts, how_many + question)
    parts = [f'<text class="d" x="{MARGIN}" y="{30 + 18 * row}">{escape(line)}</text>' for row, line in enumerate(lines)]
    for number, (lane, trace) in enumerate(drawn):
        parts += lane_lines(lane, trace, clock, TOP + number * LANE)
    height = TOP + len(drawn) * LANE + 14
    parts += legend(height - 36)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    title = "<title>Three decoding rules fill in the answer to one story</title>"
    paper = f'<rect class="paper" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{title}<style>{STYLE}'
    return "\n".join([head, *clock.rules.values(), f"</style>{paper}", *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1024:.0f} kB")
