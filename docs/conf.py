"""Configuration of the documentation site: `make docs` builds it into build/site."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER / "_ext"))

from dlstep import __version__  # noqa: E402

project, author, release = "dlstep", "The dlstep authors", __version__
project_copyright = "The dlstep authors"
language = "en"
smartquotes = False  # quotation marks and hyphens are often code

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "from_code",
    "links",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "_static"]
nitpicky = True
# References that may have no target: names of other packages, as no inventories are downloaded; names in docstrings, which are
# links only if the reference has them; and type variables and classes that annotations name by their defining module.
nitpick_ignore_regex = [
    ("py:.*", r"(?!dlstep\.).*"),
    ("py:obj", ".*"),
    ("py:class", r"dlstep\.(stream|\w+\.\w+)\.\w+"),
]

myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 4

# A name in single backticks of a docstring is a link if the reference has it.
default_role = "py:obj"
add_module_names = False
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
maximum_signature_line_length = 88
python_display_short_literal_types = True
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"dlstep {release}"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
highlight_language = "text"
pygments_dark_style = "github-dark"
copybutton_exclude = ".linenos, .gp, .go"
