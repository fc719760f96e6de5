"""Batches for tests: files of requests, whole runs and killed ones."""

import json
import os
import signal
import time
from functools import cache
from pathlib import Path
from typing import Any

from dlstep import LLM
from dlstep.batch.crews import Alone, Crew
from dlstep.batch.desk import Desk
from dlstep.batch.lines import Line, read_lines
from dlstep.batch.runner import answer_all
from dlstep.engine import Engine
from dlstep.tiny import problems

URL = "/v1/completions"
SEATS = 32


@cache
def engine() -> Engine:
    """The embedded model."""
    return LLM("tiny-bd", max_num_reqs=SEATS).engine


def request(custom_id: str, body: dict[str, Any], url: str = URL) -> dict[str, Any]:
    """A line of an input file."""
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def stories(count: int, **params: Any) -> list[dict[str, Any]]:
    """Requests that the embedded model can answer; sampled, so that seeds count."""
    params = {"max_tokens": 8, "temperature": 0.7} | params
    prompts = [problem.prompt for problem in problems(count, seed=8)]
    return [request(f"story-{number}", {"prompt": prompt, **params}) for number, prompt in enumerate(prompts)]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A file with these requests."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines_of(rows: list[dict[str, Any]]) -> list[Line]:
    """The requests as they are read from a file."""
    return read_lines("in.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())


def run(lines: list[Line], out: Path, crew: Crew | None = None) -> list[dict[str, Any]]:
    """A batch to its end; its answers."""
    answer_all(crew or Alone(Desk(engine())), lines, out)
    return [json.loads(line) for line in out.read_text().splitlines()]


def answers_file(out: Path) -> Path:
    """The checkpoint of an output."""
    return out.with_name(f"{out.name}.run") / "answers.jsonl"


def size(path: Path) -> int:
    """The bytes of a file that may not be there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def killed(lines: list[Line], out: Path, after: int) -> int:
    """Run in a child that is killed with -9 once its checkpoint has grown by `after` bytes; how much it has grown."""
    engine()  # loaded once, for all children
    path = answers_file(out)
    begin = size(path)
    child = os.fork()
    if not child:
        try:
            run(lines, out)
        finally:
            os._exit(0)
    end = time.monotonic() + 120
    while size(path) - begin < after and time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return size(path) - begin
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return size(path) - begin
