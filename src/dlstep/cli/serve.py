"""`dlstep serve`: an HTTP server for OpenAI clients."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from ..engine.config import EngineConfig, engine_config
from ..engine.option_help import field_help
from ..extras import require
from . import yaml_file
from .options import OF_STRATEGY, add_config_option, add_options, new_parser
from .parser import ArgumentParser, Namespace

EXAMPLES = """
    dlstep serve --open            an embedded model, and its page in a browser
    dlstep serve /path/to/checkpoint --device cuda --host 0.0.0.0 \\
        --port 80 --api_key_file keys.txt
    dlstep serve --decoding_strategy multi_bd --accept_threshold 0.7
    dlstep serve --config options.yaml --max_queue 1000 --request_timeout 120
    curl http://127.0.0.1:8000/v1/completions \\
        -H 'Content-Type: application/json' -d '{"prompt": "2+2=", "stream": true,
        "dlstep": {"stream": "drafts", "accept_threshold": 0.9}}'
"""
POLICY_HELP = """YAML list of options for requests without options, by the number of live requests:
    [{max_requests: 2, buffer_size: 4}, {buffer_size: 1}]."""
# Unlike for `generate`, the engine's seed is an option here: requests have their own seeds.
ENGINE_FIELDS = tuple(field for field in fields(EngineConfig) if field.name not in OF_STRATEGY)


def with_model_named(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments of `serve` with a leading model converted to `--model`."""
    return ["--model", *arguments] if arguments and not arguments[0].startswith("-") else arguments


def parser() -> ArgumentParser:
    """Return the parser of `dlstep serve`, without the options of the strategy."""
    from ..serve.settings import ServeOptions

    options = new_parser(
        "dlstep serve [MODEL] [options]",
        "Serve a model to OpenAI clients over HTTP, with streaming. See docs/serving.md.",
        EXAMPLES,
    )
    add_config_option(options)
    options.add_argument("--open", action="store_true", help="Open the page in a browser once the model is loaded.")
    add_options(options, "server", ServeOptions, fields(ServeOptions), field_help(ServeOptions))
    add_options(options, "engine", EngineConfig, ENGINE_FIELDS, field_help(EngineConfig))
    options.add_argument("--buffer_policy", type=str, default=None, metavar="FILE", help=POLICY_HELP)
    return options


def _policy(source: str | None) -> object:
    """Return the value in the YAML file at `source`. Raises ValueError if it is unreadable or invalid."""
    if source is None:
        return None
    try:
        return yaml_file.load(Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"--buffer_policy: the file {source!r} cannot be read: {error}") from error


def run(options: Namespace) -> int:
    """Serve until a signal arrives."""
    from ..serve.settings import ServeOptions

    require("dlstep serve", "serve")
    names = [field.name for field in fields(ServeOptions)]
    server_values: dict[str, Any] = {name: options[name] for name in names}
    for name in ("allowed_hosts", "allowed_origins"):
        server_values[name] = tuple(server_values[name]) if isinstance(server_values[name], list) else (server_values[name],)
    engine_values = {name: value for name, value in vars(options).items() if name not in (*names, "config", "open")}
    engine_values["buffer_policy"] = _policy(options.buffer_policy)
    config = engine_config(engine_values)
    server_options = ServeOptions(**server_values)
    from ..serve.http.server import serve

    return serve(config, server_options, opens=options.open)
