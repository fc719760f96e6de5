"""Draw `dlstep demo` as terminals of 80 and 120 columns show it, dark and light: `make terminal-pictures`.

The pictures show a moment of a decode, drawn by the code of the command.
"""

import re
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme

from dlstep import LLM, SamplingParams, tiny
from dlstep.cli import demo
from dlstep.views import recording

FOLDER = Path(__file__).parent / "terminal"
MOMENT = 5  # forward passes: some tokens may still change, and others are masked
TITLE = "multi_bd buffer 4: several unfinished blocks in flight, on the model's block grid."
THEMES: dict[str, TerminalTheme] = {"dark": SVG_EXPORT_THEME, "light": DEFAULT_TERMINAL_THEME}


def picture(width: int, theme: TerminalTheme, name: str) -> str:
    """Return the picture of a terminal as SVG."""
    console = Console(file=StringIO(), record=True, width=width, force_terminal=True, color_system="truecolor")
    demo.print_legend(console)
    session = LLM("tiny-bd", device="cpu", buffer_size=4, accept_threshold=0.9).session()
    for problem in tiny.problems(2, 2):
        session.submit(problem.prompt, SamplingParams(max_tokens=64))
    for _ in range(MOMENT):
        session.step()
    console.print(demo.picture(recording(session.trace)["runs"], TITLE))
    drawn = console.export_svg(title="dlstep demo", theme=theme, unique_id=name)
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # without fonts that a page would have to load


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for width in (80, 120):
        for name, theme in THEMES.items():
            made = picture(width, theme, f"demo-{width}-{name}")
            (FOLDER / f"demo_{width}_{name}.svg").write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
