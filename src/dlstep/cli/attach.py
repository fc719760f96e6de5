"""`dlstep attach`: watch a running server's request in the terminal."""

import json
import os
import time
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from annotated_types import Interval
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..text.words import counted, harmless, printable
from ..views import frames_view, legend
from .options import Namespace

EXAMPLES = """dlstep attach http://127.0.0.1:8000                        list requests
dlstep attach http://127.0.0.1:8000 --request cmpl-1f2e    watch one
dlstep attach http://127.0.0.1:8000 --request cmpl-1f2e --json"""
KEY = "DLSTEP_API_KEY"
PATIENCE = 10.0  # seconds to wait for a response of the server


@dataclass(frozen=True)
class AttachCommand:
    """Watch an answer of a running server form, or list one's requests.

    A request can be watched if it asked for steps: "dlstep": {"stream": "steps"}. An API key is read from DLSTEP_API_KEY.
    """

    url: str
    """Where the server listens, like http://127.0.0.1:8000."""
    _: KW_ONLY
    request: str | None = None
    """The request; null: list them."""
    interval: Annotated[float, Interval(gt=0.0, le=3600.0)] = 0.2
    """Seconds between two looks at the server."""
    json: bool = False
    """Print frames, or the list, as JSON lines on stdout."""


COMMAND = AttachCommand


def run(options: Namespace) -> int:
    """List requests, or follow one to its end. Return 1 if one of its answers failed, else 0."""
    if urlsplit(options.url).scheme not in ("http", "https") or not urlsplit(options.url).netloc:
        raise ValueError(f"URL must be like http://127.0.0.1:8000, got {options.url!r}")
    url = options.url.rstrip("/")
    try:
        if options.request is None:
            return show_list(fetched(url, "/v1/requests")["data"], as_json=options.json)
        return follow(url, options.request, options.interval, as_json=options.json)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the server at {url} answers in a form that this dlstep does not know ({error!r})") from error


def fetched(url: str, path: str) -> Any:
    """Return the JSON at a path. Raises ValueError with a message for every failure."""
    headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get(KEY)) else {}
    try:
        with urlopen(Request(url + path, headers=headers), timeout=PATIENCE) as response:
            return json.load(response)
    except HTTPError as error:
        with error:  # closes the connection
            raise ValueError(refusal(url, error)) from error
    except (URLError, OSError, ValueError, RecursionError) as error:
        raise ValueError(f"no dlstep server answers at {url}: {getattr(error, 'reason', error)}") from error


def refusal(url: str, error: HTTPError) -> str:
    """Return the server's error as a sentence with a remedy."""
    try:
        message = str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"no dlstep server answers at {url}: status {error.code} for {urlsplit(error.url).path}"
    if error.code == 401:
        return f"the server at {url} requires an API key, and {KEY} holds none that it accepts: {message}"
    if error.code == 404:
        return f"{message}; `dlstep attach {url}` lists the requests of your key"
    return f"the server at {url} refused: {message}"


def show_list(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    """Print the requests of this API key, newest first."""
    for row in rows:
        took = f"{counted(int(row['tokens']), 'token')} in {counted(int(row['nfe']), 'forward pass')}"
        line = f"{row['id']}  {row['status']}, {took}{'' if row['steps'] else ', did not ask for steps'}"
        print(json.dumps(row) if as_json else printable(line))
    if not rows and not as_json:
        print("no request is under way, and the steps of none are kept")
    return 0


class FollowedRequest:
    """The received part of a request's answers: the frames of each, and the latest `runs` without frames."""

    def __init__(self, url: str, request_id: str, *, as_json: bool) -> None:
        self.runs: list[dict[str, Any]] = []
        self.frames: list[list[dict[str, Any]]] = []
        self._url, self._path, self._as_json = url, f"/v1/requests/{quote(request_id, safe='')}/steps", as_json

    def look(self) -> bool:
        """Fetch frames after the newest that all answers have, print new ones as JSON, and return whether all have ended."""
        query = f"?after={min(known[-1]['seq'] if known else -1 for known in self.frames)}" if self.frames else ""
        self.runs = fetched(self._url, self._path + query)["runs"]
        self.frames = self.frames or [[] for _ in self.runs]
        for known, run in zip(self.frames, self.runs, strict=True):
            last = known[-1]["seq"] if known else -1
            new = [frame for frame in run["frames"] if frame["seq"] > last]
            known += new
            for frame in new if self._as_json else ():
                print(json.dumps(frame), flush=True)
        return all(run["ended"] for run in self.runs)

    def view(self) -> RenderableType:
        """Return a view of all answers."""
        return Group(*(frames_view(run["head"], known) for run, known in zip(self.runs, self.frames, strict=True)))


def follow(url: str, request_id: str, interval: float, *, as_json: bool) -> int:
    """Show an answer until it ends: on a terminal as it forms, otherwise only its text."""
    followed, console = FollowedRequest(url, request_id, as_json=as_json), Console()
    drawn = console.is_terminal and not as_json
    ended = followed.look()
    if drawn:
        console.print(legend(("prompt", "masked", "open", "final")))
    live = Live(followed.view(), console=console, auto_refresh=False, vertical_overflow="visible")
    with live if drawn else nullcontext():
        while not ended:
            time.sleep(interval)
            ended = followed.look()
            if drawn:
                live.update(followed.view(), refresh=True)
    finals = [frames[-1] for frames in followed.frames]
    for run, frame in zip(followed.runs, finals, strict=True) if not as_json else ():
        if not drawn:
            print(harmless(str(run["text"])))
        took = f"{counted(int(frame['settled']), 'token')} in {counted(int(frame['nfe']), 'forward pass')}"
        message = f"{took}, ended by {frame['finish_reason']}" + (f": {frame['error']}" if frame.get("error") else "")
        console.print(Text(printable(message)), soft_wrap=True)
    return int(any(frame.get("finish_reason") in ("error", "rejected") for frame in finals))
