"""Links from pages to files outside `docs/`, which work on a code host but not on the site.

MyST turns links to files into downloads. A link to a file that has a page on the site leads to this page
instead, and a link to a folder or to another Markdown file of the root becomes plain text.
"""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

PAGES = {"README.md": "index", "CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}
ROOT = Path(__file__).parents[2]


class OutsideLinks(SphinxPostTransform):
    """The transform; it runs before MyST reports links that lead to no page."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        del kwargs
        for node in list(self.document.findall(lambda each: isinstance(each, download_reference | pending_xref))):
            assert isinstance(node, nodes.Element)
            if node.get("reftype") != "myst":
                continue
            target = node["reftarget"].partition("#")[0]
            if node.get("refdomain") == "doc":  # a link to a Markdown file, relative to `docs/` and without its ending
                path = (Path(self.env.srcdir) / f"{target}.md").resolve()
            else:
                path = Path(self.env.relfn2path(target, node["refdoc"])[1]).resolve()
                if not path.exists() and (ROOT / target).exists():  # from a file that a page includes
                    path = ROOT / target
            if path.parent == ROOT and path.name in PAGES:
                uri = self.app.builder.get_relative_uri(self.env.docname, PAGES[path.name])
                node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=uri))
            elif path.is_relative_to(ROOT) and (path.is_dir() or (path.parent == ROOT and path.suffix == ".md")):
                node.replace_self(node.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(OutsideLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
