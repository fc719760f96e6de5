"""Links from pages to files outside `docs/`, which a code host shows and the site does not.

Files become downloads, as MyST makes them; some have a page on the site, and folders become plain text.
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
            if node.get("reftype") != "myst" or node.get("refdomain") == "doc":
                continue
            path = Path(self.env.relfn2path(node["reftarget"].partition("#")[0], node["refdoc"])[1]).resolve()
            if path.parent == ROOT and path.name in PAGES:
                uri = self.app.builder.get_relative_uri(self.env.docname, PAGES[path.name])
                node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=uri))
            elif path.is_dir() and path.is_relative_to(ROOT):
                node.replace_self(node.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(OutsideLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
