"""`dlstep attach`: watch a running server's request in the terminal."""

import json
import os
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..text.words import counted, harmless, printable
from ..views import frames_view, legend
from .options import new_parser
from .parser import ArgumentParser, Namespace

EXAMPLES = """
    dlstep attach http://127.0.0.1:8000                        list requests
    dlstep attach http://127.0.0.1:8000 --request cmpl-1f2e    watch one
    dlstep attach http://127.0.0.1:8000 --request cmpl-1f2e --json
"""
SUMMARY = (
    "Watch an answer of a running server form, or list one's requests. A request can be watched if it asked for steps: "
    '"dlstep": {"stream": "steps"}. An API key is read from DLSTEP_API_KEY.'
)
KEY = "DLSTEP_API_KEY"
PATIENCE = 10.0  # seconds to wait for a response of the server
MOST_BYTES = 1 << 28


def parser() -> ArgumentParser:
    """Return the parser of `dlstep attach`."""
    options = new_parser("dlstep attach URL [options]", SUMMARY, EXAMPLES)
    options.add_argument("url", type=str, metavar="URL", help="Where the server listens, like http://127.0.0.1:8000.")
    options.add_argument("--request", type=str | None, default=None, metavar="ID", help="The request; null: list them.")
    options.add_argument("--interval", type=float, default=0.2, help="Seconds between two looks at the server.")
    options.add_argument("--json", action="store_true", help="Print frames, or the list, as JSON lines on stdout.")
    return options


def run(options: Namespace) -> int:
    """List requests, or follow one to its end. Return 1 if one of its answers failed, else 0."""
    if urlsplit(options.url).scheme not in ("http", "https") or not urlsplit(options.url).netloc:
        raise ValueError(f"URL must be like http://127.0.0.1:8000, got {options.url!r}")
    if not 0 < options.interval <= 3600:
        raise ValueError(f"--interval must be above 0 and at most 3600 seconds, got {options.interval}")
    url = options.url.rstrip("/")
    try:
        if options.request is None:
            return show_list(fetched(url, "/v1/requests")["data"], as_json=options.json)
        return follow(url, options.request, options.interval, as_json=options.json)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the server at {url} answers in a form that this dlstep does not know ({error!r})") from error


def fetched(url: str, path: str) -> dict[str, Any]:
    """Return the JSON object at a path. Raises ValueError with a message for every failure."""
    headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get(KEY)) else {}
    try:
        with urlopen(Request(url + path, headers=headers), timeout=PATIENCE) as response:
            answer = json.loads(response.read(MOST_BYTES))
    except HTTPError as error:
        with error:  # closes the connection
            message = refusal(url, error)
        raise ValueError(message) from error
    except (URLError, OSError, ValueError, RecursionError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise ValueError(f"no dlstep server answers at {url}: {reason}") from error
    if not isinstance(answer, dict):
        raise ValueError(f"no dlstep server answers at {url}: it sent no JSON object")
    return answer


def refusal(url: str, error: HTTPError) -> str:
    """Return the server's error as a sentence with a remedy."""
    try:
        message = str(json.loads(error.read(1 << 16))["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"no dlstep server answers at {url}: status {error.code} for {urlsplit(error.url).path}"
    if error.code == 401:
        return f"the server at {url} requires an API key, and {KEY} holds none that it accepts: {message}"
    if error.code == 404:
        return f"{message}; `dlstep attach {url}` lists the requests of your key"
    return f"the server at {url} refused: {message}"


def show_list(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    """Print the requests of this API key, newest first."""
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return 0
    if not rows:
        print("no request is under way, and the steps of none are kept")
        return 0
    for row in rows:
        took = f"{counted(int(row['tokens']), 'token')} in {counted(int(row['nfe']), 'forward pass')}"
        print(printable(f"{row['id']}  {row['status']}, {took}{'' if row['steps'] else ', did not ask for steps'}"))
    return 0


class FollowedRequest:
    """The received part of a request's answers."""

    def __init__(self) -> None:
        self.heads: list[dict[str, Any]] = []
        self.frames: list[list[dict[str, Any]]] = []
        self.texts: list[str] = []
        self.ended = False

    def take(self, recording: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Store the new frames of a recording, and yield them."""
        runs = recording["runs"]
        self.heads, self.texts = [run["head"] for run in runs], [str(run["text"]) for run in runs]
        self.frames = self.frames or [[] for _ in runs]
        for known, run in zip(self.frames, runs, strict=True):
            last = known[-1]["seq"] if known else -1
            new = [frame for frame in run["frames"] if frame["seq"] > last]
            known += new
            yield from new
        self.ended = all(run["ended"] for run in runs)

    @property
    def last(self) -> int:
        """Return the number of the last frame that all answers have."""
        return min(known[-1]["seq"] if known else -1 for known in self.frames)

    @property
    def failed(self) -> bool:
        """Return whether an answer ended with an error."""
        return any(known[-1].get("finish_reason") in ("error", "rejected") for known in self.frames)

    def view(self) -> RenderableType:
        """Return a view of all answers."""
        return Group(*(frames_view(head, known) for head, known in zip(self.heads, self.frames, strict=True)))


def follow(url: str, request_id: str, interval: float, *, as_json: bool) -> int:
    """Show an answer until it ends: on a terminal as it forms, otherwise only its text."""
    path, followed, console = f"/v1/requests/{quote(request_id, safe='')}/steps", FollowedRequest(), Console()

    def look() -> None:
        query = f"?after={followed.last}" if followed.frames else ""
        for frame in followed.take(fetched(url, path + query)):
            if as_json:
                print(json.dumps(frame), flush=True)

    look()
    if console.is_terminal and not as_json:
        console.print(legend(("prompt", "masked", "open", "final")))
        with Live(followed.view(), console=console, auto_refresh=False, vertical_overflow="visible") as live:
            while not followed.ended:
                time.sleep(interval)
                look()
                live.update(followed.view(), refresh=True)
    while not followed.ended:
        time.sleep(interval)
        look()
    if not as_json:
        for text, frames in zip(followed.texts, followed.frames, strict=True):
            frame = frames[-1]
            if not console.is_terminal:
                print(harmless(text))
            took = f"{counted(int(frame['settled']), 'token')} in {counted(int(frame['nfe']), 'forward pass')}"
            message = f"{took}, ended by {frame['finish_reason']}"
            console.print(Text(printable(f"{message}: {frame['error']}" if frame.get("error") else message)), soft_wrap=True)
    return int(followed.failed)
