"""Batches for tests: files of requests, whole runs and killed ones."""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from dlstep import LLM
from dlstep.batch.checkpoint import answer_all, answered
from dlstep.batch.engine import BatchEngine
from dlstep.batch.lines import AnsweredRequest, Json, RequestLine, read_lines
from dlstep.engine.loader import LoadedEngine
from dlstep.tiny import problems

from ...helpers.killing import killed_while

URL = "/v1/completions"
SEATS = 32


@cache
def engine() -> LoadedEngine:
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


def lines_of(rows: list[dict[str, Any]]) -> list[RequestLine]:
    """The requests as they are read from a file."""
    return read_lines("in.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())


def run(lines: list[RequestLine], out: Path, pool: Any = None) -> list[dict[str, Any]]:
    """A batch to its end; its answers."""
    answer_all(pool or BatchEngine(engine()), lines, out)
    return [json.loads(line) for line in out.read_text().splitlines()]


def answers_file(out: Path) -> Path:
    """The checkpoint of an output."""
    return out.with_name(f"{out.name}.run") / "answers.jsonl"


def killed(lines: list[RequestLine], out: Path, after: int) -> int:
    """Run in a child that is killed with -9 once its checkpoint has grown by `after` bytes; how much it has grown."""
    engine()  # loaded once, for all children
    return killed_while(lambda: run(lines, out), (answers_file(out),), after)


FACTS = {"fingerprint": "1f", "strategy": "MultiBd()", "seed": 0}


class Killed(BaseException):
    """Stands for -9: nothing after it runs but what closes files, which the kernel would do."""


@dataclass
class Scripted:
    """A pool whose answers come in an order drawn by a seed, some twice; it is killed before answer number `after`."""

    seed: int
    after: int
    live: int = 0
    facts: dict[str, Any] = field(default_factory=lambda: FACTS)
    seats: int = 3
    added: list[str] = field(default_factory=list)
    _waiting: list[tuple[int, Json]] = field(default_factory=list)
    _sent: list[AnsweredRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def add(self, place: int, key: str, content: Json) -> None:
        self.added.append(key)
        self._waiting.append((place, content))
        self.live += 1

    def answers(self, requests: list[tuple[int, str, Json]]) -> Any:
        return answered(self, requests, self.seats)

    def step(self) -> list[AnsweredRequest]:
        if not self.after:
            raise Killed
        self.after -= 1
        place, content = self._waiting.pop(self._random.randrange(len(self._waiting)))
        self.live -= 1
        number = content["body"]["prompt"]
        answer = AnsweredRequest(place, 400 if number % 3 == 0 else 200, {"text": f"{number} é\n" * number}, {"seconds": 1.0})
        self._sent.append(answer)
        twice = self._random.random() < 0.3  # a call that was sent again
        return [answer, self._random.choice(self._sent)] if twice else [answer]


def numbered(numbers: list[int]) -> list[RequestLine]:
    """Requests, of which those with one number have equal content."""
    return lines_of([request(f"r{place}", {"prompt": number}) for place, number in enumerate(numbers)])
