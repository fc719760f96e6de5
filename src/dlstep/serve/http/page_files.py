"""The page's files, served with a Content-Security-Policy that allows no external resources."""

from pathlib import Path

from starlette.responses import Response

from .errors import ApiError

FOLDER = Path(__file__).parents[1] / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".png": "image/png",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # another version of the server may use this address later
}


def files() -> dict[str, Path]:
    """Return the files of the page by name, without the templates of reports."""
    names = {path.name: path for path in FOLDER.glob("*.*") if path.suffix in TYPES and path.is_file()}
    return {name: path for name, path in names.items() if path.suffix != ".html" or name == INDEX}


async def index() -> Response:
    """Return the page."""
    return await file(INDEX)


async def file(name: str) -> Response:
    """Return a file of the page. Raises ApiError for any other name, such as a path."""
    path = files().get(name)
    if path is None:
        raise ApiError(404, "the page has no such file")
    return Response(path.read_bytes(), headers=HEADERS, media_type=TYPES[path.suffix])
