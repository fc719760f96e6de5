"""`dlstep bench serve`: load on a running server."""

import os
from pathlib import Path
from typing import Any

from .. import tiny
from ..text.words import counted
from .options import new_parser
from .parser import ArgumentParser, Namespace
from .rows import followed, report

EXAMPLE = """dlstep bench serve http://127.0.0.1:8000
dlstep bench serve http://127.0.0.1:8000 --rates [0] --json
dlstep bench serve http://127.0.0.1:8000 --seconds 60 \\
    --prompts questions.txt --options '{"stream": "drafts"}'"""
COUNTS = ("rate", "requests", "refused", "failed")
COLUMNS = (*COUNTS, "tokens_per_s", "first_p50", "first_p95", "token_p50", "token_p95", "tokens_per_forward")
KEY = "DLSTEP_API_KEY"
SUMMARY = (
    "Load on a running server: requests that come at random, at rising rates, whatever becomes of earlier ones (open loop). "
    "Times are in milliseconds: to the first settled text, and per token of an answer. --json has all columns, among them what "
    "the server's processes spent."
)


def parser() -> ArgumentParser:
    """Return the parser of `dlstep bench serve`."""
    options = new_parser("dlstep bench serve URL [options]", SUMMARY, EXAMPLE)
    options.add_argument("url", type=str, metavar="URL", help="Where the server listens, like http://127.0.0.1:8000.")
    rates = "Requests a second, one row each; 0: 256 requests, 32 at a time."
    options.add_argument("--rates", type=list[float], default=[1.0, 2.0, 4.0, 8.0, 16.0], help=rates)
    options.add_argument("--seconds", type=float, default=10.0, help="Seconds for which requests come, at each rate.")
    options.add_argument("--max_tokens", type=int, default=64, help="Most tokens of an answer.")
    prompts = "File with a prompt in each line; None: stories that the embedded models know."
    options.add_argument("--prompts", type=str | None, default=None, metavar="FILE", help=prompts)
    options.add_argument(
        "--options", type=dict[str, Any], default={}, metavar="JSON", help="The object `dlstep` of each request."
    )
    options.add_argument("--warm", type=bool, default=False, help="Answer each prompt once before, which is not measured.")
    options.add_argument("--seed", type=int, default=0, help="Seed of the times between requests.")
    options.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    return options


def run(options: Namespace) -> int:
    """Print a row for each rate. Raises ValueError if no server answers."""
    from ..bench.serve import ServeRow, measure

    if not options.url.startswith("http://"):
        raise ValueError(f"URL must begin with http://, got {options.url!r}")
    if min(options.rates, default=-1.0) < 0 or options.seconds <= 0:
        raise ValueError("--rates takes numbers that are not below 0, and --seconds one above 0")
    prompts = _prompts(options.prompts)

    def described(row: ServeRow) -> str:
        return counted(row.requests, "request")

    chosen = {name: options[name] for name in ("rates", "seconds", "max_tokens", "options", "seed", "warm")}
    try:
        rows = followed(measure(options.url, prompts, key=os.environ.get(KEY), **chosen), len(options.rates), described)
    except (OSError, ValueError, IndexError) as error:
        raise ValueError(f"no dlstep server answers at {options.url}: {error}") from error
    return report(rows, COLUMNS, as_json=options.json)


def _prompts(path: str | None) -> list[str]:
    """Return the prompts: the lines of a file, or stories."""
    if path is None:
        return [problem.prompt for problem in tiny.problems(256)]
    lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"--prompts {path}: the file holds no prompt; write one a line")
    return lines
