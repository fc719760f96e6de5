"""One JSON line for each request, on stdout: what it took and how it ended. No prompt and no key unless asked for."""

import asyncio
import json
import time

from ..log_lines import LineWriter
from ..settings import ServeOptions
from .answers import Job


class RequestLog:
    """Writes the lines that the options ask for; a line that cannot be written is dropped."""

    def __init__(self, options: ServeOptions, lines: LineWriter) -> None:
        self._options, self._lines = options, lines

    def write(self, job: Job) -> None:
        """Write the line of a request whose tickets have ended, or will now that nobody waits for them."""
        if not self._options.log_requests:
            return
        tickets = job.tickets
        now = asyncio.get_running_loop().time()  # the end of tickets that the engine is still to be rid of
        row: dict[str, object] = {
            "time": round(time.time(), 3),
            "id": job.head.id,
            "owner": job.owner,
            "answers": len(tickets),
            "prompt_tokens": sum(len(ticket.submit.prompt) for ticket in tickets),
            "tokens": sum(len(ticket.tokens) for ticket in tickets),
            "forwards": sum(ticket.nfe for ticket in tickets),
            "finish_reasons": [ticket.ending.reason if ticket.ending else "abort" for ticket in tickets],
            "queued_s": _most([ticket.sent - ticket.arrived for ticket in tickets if ticket.sent is not None]),
            "first_token_s": _most([ticket.first - ticket.arrived for ticket in tickets if ticket.first is not None]),
            "seconds": _most([(now if ticket.ended is None else ticket.ended) - ticket.arrived for ticket in tickets]),
        }
        if errors := sorted({ticket.error for ticket in tickets if ticket.error}):
            row["errors"] = errors
        if self._options.log_prompts:
            row |= {"prompts": [ticket.submit.prompt for ticket in tickets], "texts": [choice.text for choice in job.choices]}
        self._lines.write(json.dumps(row))


def _most(seconds: list[float]) -> float | None:
    return round(max(seconds), 4) if seconds else None
