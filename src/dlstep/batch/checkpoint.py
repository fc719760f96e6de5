"""The loop of a run, and the files from which a killed batch or evaluation resumes.

- `answers.jsonl`: the answers so far, in order of arrival; an evaluation orders them at the end.
- `beside.jsonl`: one line per answer, with the values that depend on the other requests.
- `run.json`: the facts that the answers depend on.
- `lock`: keeps other processes from writing to the folder.

Each answer has a checksum, which is verified on reading. A partial last line, left by a killed
process, is cut off.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

from ..core import Json, short
from ..engine.json_lines import Line, RunLock, append, encoded, opened, parsed, replaced, sealed, sealed_lines
from ..engine.step_limit import StepLimit
from .lines import OWN, AnsweredRequest, RequestLine, answer_id, answer_line, content_key

ANSWERS, BESIDE, RUN = "answers.jsonl", "beside.jsonl", "run.json"
TRY_AGAIN = 500  # answers with this status or above are not stored
REMEDY = "give another OUT, or delete this one and its folder"


def begin(folder: Path, settings: Json, named: str, remedy: str) -> None:
    """Write `run.json`. Raises ValueError for a folder that holds answers of a run with another key.

    The error begins with `named`, the user's name for the folder, and ends with `remedy`.
    """
    settings = json.loads(json.dumps(settings))
    stored = read_settings(folder)["key"] if (folder / RUN).exists() else {}
    if stored != settings["key"] and any(
        (folder / name).exists() and (folder / name).stat().st_size for name in (ANSWERS, BESIDE)
    ):
        raise ValueError(f"{named} {folder} holds a run with {difference(stored, settings['key'])}: {remedy}")
    replaced(folder / RUN, json.dumps(settings, indent=2, sort_keys=True).encode() + b"\n")


def read_settings(folder: Path) -> Json:
    """Return `run.json`. Raises ValueError for a folder without a run."""
    path = folder / RUN
    if not path.is_file():
        raise ValueError(f"no run in {short(str(folder))}: it has no {RUN}; give a folder that `dlstep eval --out` wrote")
    settings = parsed(path.read_bytes(), path)
    if not isinstance(settings, dict) or "key" not in settings:
        raise ValueError(f"{path} was not written by `dlstep eval`")
    return settings


def difference(stored: Any, now: Any, name: str = "") -> str:
    """Return the first difference of two nested mappings as a phrase."""
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in sorted({*stored, *now}):
            if stored.get(key) != now.get(key):
                return difference(stored.get(key), now.get(key), f"{name}.{key}" if name else key)
    return f"{name} {short(stored)}, and now it is {short(now)}"


class AnswerFiles(ABC):
    """The files of a run, locked against other processes until `close`; answers are appended as they arrive.

    Args:
        folder: the folder of the run.
        settings: the content of `run.json`.
        named: the user's name for the folder, in errors.
        remedy: what to do about a folder with another run, in errors.

    Raises:
        ValueError: Another process writes to the folder, or it has files of another run.
    """

    def __init__(self, folder: Path, settings: Json, named: str, remedy: str) -> None:
        self.folder = folder
        with ExitStack() as held:
            self.lock = held.enter_context(closing(RunLock(folder)))
            begin(folder, settings, named, remedy)
            self.load()
            self._answers, self._beside = (held.enter_context(opened(folder / name)) for name in (ANSWERS, BESIDE))
            self._held = held.pop_all()

    @abstractmethod
    def load(self) -> None:
        """Read the answers so far. Raises ValueError if a stored answer was altered."""

    def append(self, answer: Line | None, beside: Line) -> None:
        """Write an answer, unless it is None, and its line of `beside.jsonl`."""
        append(self._beside, beside)  # first, so that every stored answer has its line here
        if answer is not None:
            append(self._answers, answer)

    def close(self) -> None:
        """Close the files and release the lock."""
        self._held.close()


def folder_of(out: Path) -> Path:
    """Return the folder of the files that belong to an output of a batch."""
    return out.with_name(f"{out.name}.run")


class BatchCheckpoint(AnswerFiles):
    """The stored answers of a batch.

    Raises ValueError if another process writes to the same output, if the folder has files of
    another batch, or if a stored answer was altered.
    """

    def __init__(self, out: Path, lines: Sequence[RequestLine], facts: Json) -> None:
        self._out, self._lines = out, lines
        self.keys = [content_key(facts, line.content) for line in lines]
        self._counts = Counter(map(answer_id, self.keys))
        self.done = self.failed = 0  # numbers of requests with an answer, and with an error
        self._known: dict[str, Line] = {}
        folder = folder_of(out)
        if out.exists() and not (folder / RUN).exists():
            raise ValueError(
                f"{out} exists and is not the output of a batch that can be resumed: give another OUT, or delete it"
            )
        super().__init__(folder, {"key": {"engine": facts}}, "the folder", REMEDY)

    def load(self) -> None:
        """Read the answers so far."""
        path = self.folder / ANSWERS
        for answer in sealed_lines(path):
            if answer["id"] not in self._counts:
                reason = "has answers to requests that are not in the input: the input has changed, or is another one"
                raise ValueError(f"{path} {reason}; {REMEDY}")
            self._add(answer)

    @property
    def missing(self) -> list[int]:
        """The places of requests without an answer; for equal contents only the first place."""
        first = {key: place for place, key in reversed([*enumerate(self.keys)])}
        return sorted(place for key, place in first.items() if answer_id(key) not in self._known)

    def note(self, answered: AnsweredRequest) -> None:
        """Write an answer. A second answer to the same content is ignored."""
        answer = answer_line(self.keys[answered.place], answered.status, answered.body)
        if answer["id"] not in self._known:
            # A failure may succeed on retry, so it is not stored.
            self.append(sealed(answer) if answered.status < TRY_AGAIN else None, {"id": answer["id"], **answered.beside})
            self._add(answer)

    def finish(self) -> None:
        """Write the output atomically. Raises DlstepError if the folder was deleted or replaced."""
        self.lock.check()
        answers = zip(self._lines, [self._known[answer_id(key)] for key in self.keys], strict=True)
        replaced(self._out, b"".join(encoded({"id": each["id"], OWN: line.custom_id, **each}) for line, each in answers))

    def _add(self, answer: Line) -> None:
        if self._known.setdefault(answer["id"], answer) is answer:
            requests = self._counts[answer["id"]]
            self.done += requests
            self.failed += requests * (answer["response"]["status_code"] != 200)


Show = Callable[[int, str], None]  # number of answers so far, status text


def no_show(done: int, status: str) -> None:
    """Show nothing."""


def answered(
    pool: Any, requests: Iterable[tuple[Any, ...]], seats: int, limit: StepLimit | None = None
) -> Generator[Sequence[Any]]:
    """Yield the answers of each step of a pool: `add` queues a request, and `live` is the number of unanswered ones.

    Twice as many requests are queued as can run, so that the engine never idles. A step that exceeds `limit` ends the process.
    """
    waiting = deque(requests)
    while waiting or pool.live:
        with nullcontext() if limit is None else limit.enforced():
            while waiting and pool.live < 2 * seats:
                pool.add(*waiting.popleft())
            answers = pool.step()
        yield answers


def answer_all(pool: Any, lines: list[RequestLine], out: Path, show: Show = no_show) -> int:
    """Answer all requests without an answer with a `BatchEngine` or a `RayPool`, and write `out`. Return the number of errors.

    If the process is killed, call this again: it resumes and writes a byte-identical `out`. Raises
    ValueError if files of another batch exist there, and DlstepError if the pool cannot continue.
    """
    with closing(BatchCheckpoint(out, lines, pool.facts)) as checkpoint:
        requests = [(place, checkpoint.keys[place], lines[place].content) for place in checkpoint.missing]
        with closing(pool.answers(requests)) as steps:
            for answers in steps:
                for answer in answers:
                    checkpoint.note(answer)
                if answers:
                    show(checkpoint.done, f"{checkpoint.failed} errors" if checkpoint.failed else "")
        checkpoint.finish()
        return checkpoint.failed
