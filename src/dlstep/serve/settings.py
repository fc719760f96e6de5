"""Options of the server: names, meaning and bounds."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Interval

from ..core.checks import check_ranges

KEYS_VARIABLE = "DLSTEP_API_KEY"
Seconds = Annotated[float, Interval(gt=0.0, le=1e9)]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of the server, beside those of the engine. Raises ValueError naming field, value and what is allowed."""

    host: str = "127.0.0.1"
    """Address to listen on; the default is this machine alone, 0.0.0.0 is everybody."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 8000
    """Port to listen on; 0: one that is free, which is printed."""
    served_model_name: str | None = None
    """Name of the model to clients; None: the name of its folder."""
    chat_template: str | None = None
    """File with a chat template, used in place of the checkpoint's."""
    api_key_file: str | None = None
    """File of API keys, one a line; None: the environment variable DLSTEP_API_KEY holds one, or none is asked for."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may call the server (CORS), like http://localhost:3000; none unless given."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that clients may use, like chat.example.com or *.example.com; IP addresses are always allowed. By default
    localhost if the server listens only on this machine, else any name."""
    max_queue: Annotated[int, Ge(1)] = 256
    """Most requests that wait for the engine; more are refused with status 429."""
    queue_timeout: Seconds = 60.0
    """Seconds a request may wait for the engine."""
    request_timeout: Seconds = 600.0
    """Seconds from arrival after which an answer ends with what is settled."""
    start_timeout: Seconds = 1800.0
    """Seconds that an engine may take to load; one that takes longer is killed and started again."""
    heartbeat_timeout: Annotated[float, Interval(ge=3.0, le=1e9)] = 15.0
    """Seconds without a heartbeat after which a loaded engine is killed and started again. An engine sends a heartbeat every
    second and gets no new requests after 2.5 seconds without one."""
    engine_timeout: Seconds = 360.0
    """Seconds that one forward pass may take, including compilation and graph capture; a slower engine is killed and started
    again. Set it above `rank_timeout`, so that an engine of several ranks can first report which rank is lost."""
    body_timeout: Seconds = 30.0
    """Seconds that a client may take to send a request's body."""
    idle_timeout: Seconds = 30.0
    """Seconds after which a connection is closed if its client sends no complete request header or reads none of its answer."""
    max_connections: Annotated[int, Ge(1)] = 1000
    """Most open connections, or fewer if there are not enough file descriptors (`ulimit -n`). A further connection replaces the
    one that has been idle for longest."""
    drain_seconds: Annotated[float, Interval(ge=0.0, le=1e9)] = 30.0
    """Seconds that answers under way may take after SIGTERM or Ctrl-C; then they end with what is settled."""
    ping_seconds: Seconds = 15.0
    """Seconds of silence after which a stream sends a comment line, so that proxies keep it open."""
    max_body_bytes: Annotated[int, Gt(0)] = 1 << 20
    """Largest body of a request."""
    replicas: Annotated[int, Interval(ge=1, le=64)] = 1
    """Number of engines. Each runs in a separate process with its own weights and KV pages. If there are several CUDA devices,
    each engine takes one, or N with --tp N.
    SIGHUP starts them again one by one, with the weights that are there then."""
    max_restarts: Annotated[int, Ge(0)] = 3
    """How often each engine that died is started again; one that lived for a minute counts anew."""
    kept_requests: Annotated[int, Interval(ge=0, le=10_000)] = 64
    """Answers whose steps are kept for forks, of requests that asked for steps; the oldest is dropped. 0: none is kept."""
    kept_positions: Annotated[int, Gt(0)] = 8_000_000
    """Most positions that kept steps hold, 100 to 200 bytes each; the oldest request is dropped where it would be more."""
    share_prefix_cache: bool = False
    """Share cached prompt pages among API keys. By default they are not shared, so no key can learn the prompts of another from
    `cached_tokens` or from response times."""
    log_requests: bool = True
    """Write a JSON line on stdout for each request."""
    log_prompts: bool = False
    """Put prompts and answers into those lines, too."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def api_keys(self, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """The keys of the file, or else of the environment. Raises ValueError for a file without keys."""
        if self.api_key_file is None:
            return tuple(filter(None, [environment.get(KEYS_VARIABLE, "").strip()]))
        lines = Path(self.api_key_file).read_text(encoding="utf-8").splitlines()
        keys = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
        if not keys:
            raise ValueError(f"--api_key_file {self.api_key_file}: the file holds no key; write one a line")
        return keys

    def template(self) -> str | None:
        """The text of the chat template's file."""
        return None if self.chat_template is None else Path(self.chat_template).read_text(encoding="utf-8")
