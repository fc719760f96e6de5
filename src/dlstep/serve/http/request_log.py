"""One JSON line per request on stdout: its cost and finish reasons."""

import asyncio
import json
import time
from collections.abc import Callable

from ..log_lines import LineWriter
from ..router.tickets import Ticket
from ..settings import ServeOptions
from .answers import Job


class RequestLog:
    """A writer of log lines as configured by the options. It drops lines that cannot be written."""

    def __init__(self, options: ServeOptions, lines: LineWriter) -> None:
        self._options, self._lines = options, lines

    def write(self, job: Job) -> None:
        """Write the line of a request whose tickets have ended or were just cancelled."""
        if not self._options.log_requests:
            return
        row = _row(job, asyncio.get_running_loop().time())
        if self._options.log_prompts:
            row["prompts"] = [ticket.submit.prompt for ticket in job.tickets]
            row["texts"] = [choice.text for choice in job.choices]
        self._lines.write(json.dumps(row))


def _row(job: Job, now: float) -> dict[str, object]:
    """Return the log line of a request as a dictionary. Running tickets count as ended `now`."""
    tickets = job.tickets
    errors = sorted({ticket.error for ticket in tickets if ticket.error})
    return {
        "time": round(time.time(), 3),
        "id": job.head.id,
        "owner": job.owner,
        "answers": len(tickets),
        "prompt_tokens": sum(len(ticket.submit.prompt) for ticket in tickets),
        "tokens": sum(len(ticket.tokens) for ticket in tickets),
        "forwards": sum(ticket.nfe for ticket in tickets),
        "finish_reasons": [ticket.ending.reason if ticket.ending else "abort" for ticket in tickets],
        "queued_s": _longest(tickets, lambda ticket: ticket.sent),
        "first_token_s": _longest(tickets, lambda ticket: ticket.first),
        "seconds": _longest(tickets, lambda ticket: now if ticket.ended is None else ticket.ended),
        **({"errors": errors} if errors else {}),
    }


def _longest(tickets: list[Ticket], time_of: Callable[[Ticket], float | None]) -> float | None:
    """Return the longest time in seconds from a ticket's arrival to `time_of`, or None."""
    seconds = [end - ticket.arrived for ticket in tickets if (end := time_of(ticket)) is not None]
    return round(max(seconds), 4) if seconds else None
