"""One JSON line per request on stdout: its cost and finish reasons."""

import asyncio
import json
import time
from collections.abc import Callable

from ..log_lines import LineWriter
from ..router.pending_requests import PendingRequest
from ..settings import ServeOptions
from .answers import AnswerJob


class RequestLog:
    """A writer of log lines as configured by the options. It drops lines that cannot be written."""

    def __init__(self, options: ServeOptions, lines: LineWriter) -> None:
        self._options, self._lines = options, lines

    def write(self, job: AnswerJob) -> None:
        """Write the line of a request whose answers have ended or were just cancelled."""
        if not self._options.log_requests:
            return
        row = _row(job, asyncio.get_running_loop().time())
        if self._options.log_prompts:
            row["prompts"] = [pending.submit.prompt for pending in job.pending_requests]
            row["texts"] = [choice.text for choice in job.choices]
        self._lines.write(json.dumps(row))


def _row(job: AnswerJob, now: float) -> dict[str, object]:
    """Return the log line of a request as a dictionary. Running answers count as ended `now`."""
    pending_requests = job.pending_requests
    errors = sorted({pending.error for pending in pending_requests if pending.error})
    return {
        "time": round(time.time(), 3),
        "id": job.head.id,
        "owner": job.owner,
        "answers": len(pending_requests),
        "prompt_tokens": sum(len(pending.submit.prompt) for pending in pending_requests),
        "tokens": sum(len(pending.tokens) for pending in pending_requests),
        "forwards": sum(pending.nfe for pending in pending_requests),
        "finish_reasons": [pending.finish_info.reason if pending.finish_info else "abort" for pending in pending_requests],
        "queued_s": _longest(pending_requests, lambda pending: pending.sent),
        "first_token_s": _longest(pending_requests, lambda pending: pending.first),
        "seconds": _longest(pending_requests, lambda pending: now if pending.ended is None else pending.ended),
        **({"errors": errors} if errors else {}),
    }


def _longest(pending_requests: list[PendingRequest], time_of: Callable[[PendingRequest], float | None]) -> float | None:
    """Return the longest time in seconds from the arrival of a request to `time_of`, or None."""
    seconds = [end - pending.arrived for pending in pending_requests if (end := time_of(pending)) is not None]
    return round(max(seconds), 4) if seconds else None
