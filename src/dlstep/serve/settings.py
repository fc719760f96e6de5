"""Options of the server: names, meanings and bounds."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from ..core import NonNegativeInt, PositiveInt, Refused, Texts, check_ranges
from ..text.chat import variables_of

# Options that list names: the regex of a name, and the remedy for other texts.
NAMES = (
    (
        "allowed_hosts",
        r"\*|(\*\.)?[\w-]+(\.[\w-]+)*",
        "give names without scheme, port and path, like chat.example.com or *.example.com; IP addresses are always allowed",
    ),
    (
        "allowed_origins",
        r"\*|null|[a-z][a-z\d+.-]*://[^\s/A-Z]+",
        "give scheme and host in lower case, the port unless it is the default one, and no path, like http://localhost:3000",
    ),
)
Seconds = Annotated[float, Interval(gt=0.0, le=1e9)]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of the server, in addition to the engine's. Raises ValueError if out of range."""

    host: str = "127.0.0.1"
    """Address to listen on. The default accepts local connections only; 0.0.0.0 accepts connections from any machine."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 8000
    """Port to listen on; 0 picks a free port and prints it."""
    served_model_name: str | None = None
    """Model name that clients use; None: the name of the model's folder."""
    chat_template: str | None = None
    """File with a chat template that replaces the checkpoint's."""
    api_key_file: str | None = None
    """File with one API key per line; lines that begin with # are comments. None: the key in the environment variable
    DLSTEP_API_KEY, or no key if it is unset."""
    admin_key_file: str | None = None
    """File with one key per line for the routes that update weights, free memory and pause. None: the key in the environment
    variable DLSTEP_ADMIN_KEY; if it is unset, these routes do not exist."""
    allowed_origins: Texts = ()
    """Origins whose pages may call the server (CORS), like http://localhost:3000; by default none."""
    allowed_hosts: Texts = ()
    """Host names that clients may use, like `chat.example.com` or `*.example.com`; IP addresses are always allowed. By default
    localhost if the server listens only on this machine, else any name."""
    max_queue: PositiveInt = 256
    """Maximum number of requests waiting for the engine; further requests get status 429."""
    queue_timeout: Seconds = 60.0
    """Seconds a request may wait for the engine."""
    request_timeout: Seconds = 600.0
    """Seconds from arrival after which an answer ends with its settled tokens."""
    start_timeout: Seconds = 1800.0
    """Seconds that an engine may take to load; a slower engine is killed and restarted."""
    heartbeat_timeout: Annotated[float, Interval(ge=3.0, le=1e9)] = 15.0
    """Seconds without a heartbeat after which a loaded engine is killed and restarted. An engine sends a heartbeat every
    second and gets no new requests after 2.5 seconds without one."""
    engine_timeout: Seconds = 360.0
    """Seconds that the first forward pass may take, including compilation and graph capture, before the engine is killed and
    restarted. For later passes, the limit is the largest of 60 seconds, a sixth of this option and ten times the slowest pass,
    but at most this option. If a strategy takes longer than this option to accept a request, the server ends, because it could
    accept no other request either. Set it above `rank_timeout`, so that an engine with several ranks can first report which
    rank is lost."""
    body_timeout: Seconds = 30.0
    """Seconds that a client may take to send a request's body."""
    idle_timeout: Seconds = 30.0
    """Seconds after which a connection is closed if its client sends no request, or stops sending a body or reading an answer.
    A client that waits for an answer is not idle."""
    max_connections: PositiveInt = 1000
    """Maximum number of open connections, each of which needs a file descriptor. If there are more, those that have been idle
    longest are closed; if none is idle, requests on new connections get status 503, except health checks. The server raises
    the limit on descriptors (`ulimit -n`) as far as it may; if that is not enough, it allows fewer connections and logs how
    many."""
    drain_seconds: Annotated[float, Interval(ge=0.0, le=1e9)] = 30.0
    """Seconds that running requests may take after SIGTERM, SIGHUP or Ctrl-C; then they end with their settled tokens."""
    ping_seconds: Seconds = 15.0
    """Seconds of silence after which a stream sends a comment line, so that proxies keep it open."""
    max_body_bytes: PositiveInt = 1 << 20
    """Maximum size of a request body in bytes."""
    replicas: Annotated[int, Interval(ge=1, le=64)] = 1
    """Number of engines. Each runs in a separate process with its own weights and KV pages. If there are several CUDA devices,
    each engine uses one, or N with --tp N."""
    max_restarts: NonNegativeInt = 3
    """How often an engine that died is restarted; the count resets once it has been ready for a minute."""
    kept_requests: Annotated[int, Interval(ge=0, le=10_000)] = 64
    """Maximum number of answers whose steps are kept for forks; the oldest are dropped first. 0: keep none."""
    kept_positions: PositiveInt | None = None
    """Maximum number of positions in kept steps, 100 to 200 bytes each; the oldest requests are dropped first. None:
    8,000,000."""
    share_prefix_cache: bool = False
    """Share cached prompt pages among API keys. By default they are not shared, so no key can infer the prompts of another
    from `cached_tokens` or response times."""
    log_requests: bool = True
    """Write one JSON line per request to stdout."""
    log_prompts: bool = False
    """Include prompts and answers in the lines of `log_requests`."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.log_prompts and not self.log_requests:
            raise Refused("log_prompts", "conflict", "it has no effect without log_requests: set both or none")
        if self.kept_positions is not None and not self.kept_requests:
            raise Refused("kept_positions", "conflict", "it has no effect with kept_requests=0: leave one of them out")
        for name, form, remedy in NAMES:
            for given in getattr(self, name):
                if not re.fullmatch(form, given, re.ASCII):
                    raise Refused(name, "invalid_value", f"{given!r} matches no request: {remedy}")

    def api_keys(self) -> Texts:
        """Return the keys of file or environment. Raises ValueError if these contain no key, or the file cannot be read."""
        return _keys_in("api_key", self.api_key_file, "set it to a key, or unset it to require none")

    def admin_keys(self) -> Texts:
        """Return the keys of the routes for administrators; none: no such routes. Raises as `api_keys`."""
        return _keys_in("admin_key", self.admin_key_file, "set it to a key, or unset it to have no routes for administrators")


def _keys_in(kind: str, file: str | None, remedy: str) -> Texts:
    """Return the keys of an option's file, or else of its environment variable."""
    if file is None:
        variable = f"DLSTEP_{kind.upper()}"
        given = os.environ.get(variable)
        return () if given is None else _keys(variable, [given], remedy)
    named = f"--{kind}_file {file}"
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{named}: {error}: give a text file with one key per line") from error
    return _keys(named, [line for line in lines if not line.lstrip().startswith("#")], "write one key per line")


def _keys(named: str, lines: Iterable[str], remedy: str) -> Texts:
    keys = tuple(dict.fromkeys(filter(None, map(str.strip, lines))))
    if not keys:
        raise ValueError(f"{named} contains no key: {remedy}")
    if any(len(key.split()) > 1 for key in keys):
        raise ValueError(f"{named}: a key contains a space: write one key per line, and comments in lines that begin with #")
    return keys


def template_in(path: str | None) -> str | None:
    """Return the text of a chat template's file; None for no file. Raises ValueError if it contains no template."""
    if path is None:
        return None
    text = Path(path).read_text("utf-8")
    variables_of(text)  # raises ValueError for an invalid template
    if not text.strip():
        raise ValueError(f"--chat_template {path} is empty: give a file with a Jinja template")
    return text
