"""`dlstep serve`: an HTTP server for OpenAI clients."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from ..engine.config import EngineConfig, engine_config
from ..extras import require
from ..serve.settings import ServeOptions
from .options import OF_STRATEGY, ArgumentParser, Namespace, engine_options, load

EXAMPLES = """dlstep serve --open            an embedded model, and its page in a browser
dlstep serve /path/to/checkpoint --device cuda --host 0.0.0.0 \\
    --port 80 --api_key_file keys.txt
dlstep serve --decoding_strategy multi_bd --accept_threshold 0.7
dlstep serve --config options.yaml --max_queue 1000 --request_timeout 120
curl http://127.0.0.1:8000/v1/completions \\
    -H 'Content-Type: application/json' -d '{"prompt": "2+2=", "stream": true,
    "dlstep": {"stream": "drafts", "accept_threshold": 0.9}}'"""


@dataclass(frozen=True, kw_only=True)
class ServeCommand:
    """Serve a model to OpenAI clients over HTTP, with streaming. See docs/serving.md."""

    open: bool = False
    """Open the page in a browser once the model is loaded."""
    buffer_policy: Path | None = None
    """YAML list of options for requests without options, by the number of live requests: [{max_requests: 2, buffer_size: 4},
    {buffer_size: 1}]."""


COMMAND = ServeCommand


def add_options(parser: ArgumentParser) -> None:
    """Add the options of the server and of the engine."""
    parser.usage = "dlstep serve [MODEL] [options]"
    parser.add_options(ServeOptions, "server")
    parser.add_options(EngineConfig, "engine", without=OF_STRATEGY)


def _policy(path: Path | None) -> object:
    """Return the value in a YAML file. Raises ValueError if it is unreadable or invalid."""
    try:
        return None if path is None else load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"--buffer_policy: the file {str(path)!r} cannot be read: {error}") from error


def run(options: Namespace) -> int:
    """Serve until a signal arrives."""
    require("dlstep serve", "serve")
    engine = engine_options(options, ServeCommand, ServeOptions) | {"buffer_policy": _policy(options.buffer_policy)}
    config = engine_config(engine)
    server_options = options.of(ServeOptions)
    from ..serve.http.server import serve

    return serve(config, server_options, opens=options.open)
