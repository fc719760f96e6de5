"""The directive `from-code`: parts of the reference that are written from the code at build time."""

from collections.abc import Callable
from typing import ClassVar

import command_line_text
import http_text
from docutils import nodes
from option_text import options_text
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dlstep import rules, strategies
from dlstep.core.options import PluginGroup


def classes_text(plugins: PluginGroup) -> str:
    """Return a section for each built-in strategy or rule, with its class and options."""
    sections = list[str]()
    for name in plugins.own():
        cls = plugins.load(name)
        sections.append(f"## {name}\n\n```{{eval-rst}}\n.. autoclass:: {cls.__module__}.{cls.__name__}\n```\n")
    return "\n".join(sections)


TEXTS: dict[str, Callable[[], str]] = {
    "command line": command_line_text.text,
    "http": http_text.text,
    "rules": lambda: classes_text(rules.PLUGINS),
    "strategies": lambda: classes_text(strategies.PLUGINS),
}


class FromCode(SphinxDirective):
    """A directive that inserts one of `TEXTS`, or the table of options of the class that it names."""

    required_arguments: ClassVar[int] = 1
    final_argument_whitespace: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        self.env.note_reread()  # the code may change while the page does not
        text = TEXTS[name]() if name in TEXTS else options_text(name)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("from-code", FromCode)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
