"""Rendering of untrusted chat templates in a separate process with limits of time and memory.

It is not a `processes.Worker`, because those import the main module and so need a `__main__` guard.
"""

import atexit
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from time import monotonic
from typing import Any

START_SECONDS = 60.0  # for the process to start on a busy machine
RENDER_SECONDS = 10.0
GRACE_SECONDS = 2.0  # after which a process that did not end itself is killed, because it was stopped
LONGEST_TEMPLATE = 1 << 18  # characters
WORKER = Path(__file__).with_name("_template_worker.py")
END_OF_LAST = "CONTINUE_FINAL_MESSAGE_TAG "  # marks where an answer continues the last message
REASONING = ("reasoning_content", "thinking", "reasoning")


class Renderer:
    """A process that renders templates, started when needed. Thread-safe: renders one at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Render a template with plain values. Raises ValueError with the reason if it fails."""
        job = pickle.dumps((RENDER_SECONDS, template, dict(variables)))
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self._end()
            try:
                if self._process is None:
                    self._process = _process()
                    if _answer(self._process, pickle.dumps((START_SECONDS, "", {})), START_SECONDS) is None:
                        raise ValueError(f"the process that renders templates did not start: {sys.executable} {WORKER}")
                begun = monotonic()
                answer = _answer(self._process, job, RENDER_SECONDS)
            except BaseException:  # even KeyboardInterrupt: the next call must not read this answer
                self._end()
                raise
            if answer is None:
                self._end()
        if answer is None:
            late = monotonic() - begun >= RENDER_SECONDS
            raise ValueError(f"it takes more than {RENDER_SECONDS:g} seconds" if late else "it takes too much memory")
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["text"]

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError), process:  # waits for it and closes the pipes
                pass


def _process() -> subprocess.Popen[bytes]:
    """Start a new process."""
    return subprocess.Popen(
        [sys.executable, "-P", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # so that Ctrl-C does not end it
    )


def _answer(process: subprocess.Popen[bytes], job: bytes, seconds: float) -> dict[str, str] | None:
    """Send a job and return its answer; None if the process ended without one or was killed after `seconds`."""
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    # The process limits its own time, so that it also ends without a parent. A stopped process cannot: the parent kills it.
    deadline = Timer(seconds + GRACE_SECONDS, process.kill)
    deadline.daemon = True
    deadline.start()
    try:
        process.stdin.write(job)
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        return None
    finally:
        deadline.cancel()
        deadline.join()
    return json.loads(line) if line.endswith(b"\n") else None


_renderer = Renderer()
atexit.register(_renderer.close)
if hasattr(os, "register_at_fork"):  # a forked process must not use the pipes of its parent
    os.register_at_fork(after_in_child=_renderer.__init__)


def plain(value: Any) -> Any:
    """Return a value as plain JSON types. Replace any other object by its class name."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return f"<{type(value).__name__}>"


def as_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message for templates: without None values, with its reasoning under all names."""
    present = {key: plain(value) for key, value in message.items() if value is not None}
    reasoning = next((present[name] for name in REASONING if name in present), None)
    return present if reasoning is None else {"thinking": reasoning, **present, "reasoning_content": reasoning}


def render(
    template: str, messages: Sequence[Mapping[str, Any]], special_tokens: Mapping[str, str], *, continues: bool = False
) -> str:
    """Render messages with a chat template, up to the start of the assistant's answer.

    With `continues`, the text ends with the content of the last message, which the answer continues
    (like `continue_final_message` of transformers). Raises ValueError if the template is invalid,
    rejects the messages, takes too long, makes too much text, or omits the last message.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise ValueError(f"the chat template has {len(template)} characters, and at most {LONGEST_TEMPLATE} are read")
    try:
        plain_messages = [as_message(message) for message in messages]
        if continues:
            plain_messages[-1]["content"] += END_OF_LAST
        facts = {"tools": None, "documents": None, "add_generation_prompt": not continues, **plain(special_tokens)}
        text = _renderer.render(template, {"messages": plain_messages, **facts})
        return text_before_end(text, str(messages[-1]["content"])) if continues else text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the chat template cannot render these messages: {error}") from error


def text_before_end(text: str, last: str) -> str:
    """Return a rendered text up to the end of its message `last`. Raises ValueError without it."""
    end = text.rfind(END_OF_LAST.strip())
    if end < 0 or last.strip() not in text:
        raise ValueError("the last message, which the answer continues, is not in the text")
    # If the template trimmed the blank after the mark, also trim blanks before the mark.
    return text[:end] if text.startswith(END_OF_LAST, end) else text[:end].rstrip()
