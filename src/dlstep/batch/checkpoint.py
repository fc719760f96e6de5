"""The files of a batch. A folder next to the output contains what is needed to resume the batch.

- `answers.jsonl`: the answers so far, in order of arrival.
- `beside.jsonl`: one line per answer, with the values that depend on the other requests.
- `run.json`: the facts of the engine.
- `lock`: keeps other processes from writing to the folder.

The formats are those of an evaluation. Answers carry a checksum, which is verified on reading.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from ..engine.json_lines import append, encoded, is_a, opened, whole_lines
from ..engine.run_lock import RunLock
from ..evaluate.checkpoint import ANSWERS, BESIDE, RUN, begin
from .engine import AnsweredRequest, BatchEngineInfo
from .lines import OWN, Json, RequestLine, answer_id, answer_line, content_key, is_intact, lasts, merged, missing, output_lines

ANSWER = {"id": str, "response": {"status_code": int, "body": dict}}  # fields of an answer and their types
REMEDY = "give another OUT, or delete this one and its folder"


def folder_of(out: Path) -> Path:
    """Return the folder of the files that belong to an output."""
    return out.with_name(f"{out.name}.run")


class BatchCheckpoint:
    """The stored answers of a batch, locked against other processes until `close`.

    Raises ValueError if another process writes to the same output, if the folder has files of
    another batch, or if a stored answer was altered.
    """

    def __init__(self, out: Path, lines: Sequence[RequestLine], about: BatchEngineInfo) -> None:
        self._out, self._lines = out, lines
        self._folder = folder_of(out)
        self.keys = [content_key(about.facts, line.content) for line in lines]
        if out.exists() and not (self._folder / RUN).exists():
            raise ValueError(
                f"{out} exists and is not the output of a batch that can be resumed: give another OUT, or delete it"
            )
        with ExitStack() as held:
            self._lock = RunLock(self._folder)
            held.callback(self._lock.close)
            self._open(about)
            held.pop_all()

    def _open(self, about: BatchEngineInfo) -> None:
        begin(self._folder, {"key": {"engine": about.facts}}, "the folder", REMEDY)
        self._known = merged([*self._read(self._out), *self._read(self._folder / ANSWERS)])
        foreign = self._known.keys() - {answer_id(key) for key in self.keys}
        if foreign:
            raise ValueError(
                f"{self._out} has answers to {len(foreign)} requests that are not in the input: the input has changed, or is "
                f"another one; {REMEDY}"
            )
        self._counts = Counter(map(answer_id, self.keys))
        self.done = self.failed = 0  # numbers of requests with an answer, and with an error
        for answer in self._known.values():
            self._count(answer)
        self._answers, self._beside = opened(self._folder / ANSWERS), opened(self._folder / BESIDE)

    @property
    def missing(self) -> list[int]:
        """The places of requests without an answer; for equal contents only the first place."""
        return missing(self.keys, self._known)

    def note(self, answered: AnsweredRequest) -> None:
        """Write an answer. A second answer to the same content is ignored."""
        key = self.keys[answered.place]
        if answer_id(key) in self._known:
            return
        answer = answer_line(key, answered.status, answered.body)
        append(self._beside, {"id": answer["id"], **answered.beside})
        if lasts(answer):
            append(self._answers, answer)
        self._known[answer["id"]] = answer
        self._count(answer)

    def finish(self) -> None:
        """Write the output atomically. Raises DlstepError if the folder was deleted or replaced."""
        self._lock.check()
        new = self._out.with_name(f"{self._out.name}.new")
        with new.open("wb") as file:
            for line in output_lines(self._lines, self.keys, self._known):
                file.write(encoded(line))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._out)
        self._answers.close()
        (self._folder / ANSWERS).unlink()

    def close(self) -> None:
        """Close the files and release the lock."""
        self._answers.close()
        self._beside.close()
        self._lock.close()

    def _count(self, answer: Json) -> None:
        requests = self._counts[answer["id"]]
        self.done += requests
        self.failed += requests * (answer["response"]["status_code"] != 200)

    def _read(self, path: Path) -> Iterator[Json]:
        """Yield the answers of a file. Raises ValueError for a line that is not an answer or whose checksum is wrong."""
        for number, line in enumerate(whole_lines(path), 1):
            if "error" not in line or not is_a(line, ANSWER):
                raise ValueError(f"{path}, line {number} is not an answer of a batch: {REMEDY}")
            if not is_intact(line):
                raise ValueError(
                    f"{path}, line {number} has a wrong checksum, so this answer was altered or comes from another version of "
                    f"dlstep: delete the line and run again, which answers the request again; or {REMEDY}"
                )
            yield {name: value for name, value in line.items() if name != OWN}
