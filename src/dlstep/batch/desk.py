"""An engine that answers the requests of a batch like the server would."""

from dataclasses import dataclass, replace
from itertools import count
from time import perf_counter
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from ..core import DlstepError
from ..engine.loader import Engine
from ..evaluate.versions import about as facts_of
from ..serve.engine_loop import MOST_FAILURES, EngineLoop, card_of
from ..serve.facts import known_facts
from ..serve.http import translate
from ..serve.http.choices import read_choices
from ..serve.http.errors import ApiError, first_fault, invalid
from ..serve.http.replies import reply_body, usage_of
from ..serve.http.schema import ChatRequest, CompletionRequest, Strict
from ..serve.http.translate import Asked, head_for
from ..serve.messages import Submit
from ..serve.router.heads import Head, id_of
from ..serve.router.tickets import Ticket
from ..serve.settings import ServeOptions
from .lines import Json, created_of

MODELS = {"/v1/completions": CompletionRequest, "/v1/chat/completions": ChatRequest}
MEASURED = ("nfe", "tokens_per_forward")  # fields of a choice that depend on the batch
ROUND = 6  # decimals of measured seconds


class RequestLine(Strict):
    """A request without its `custom_id`."""

    method: Literal["POST"]
    url: Literal["/v1/completions", "/v1/chat/completions"]
    body: dict[str, Any]


class About(NamedTuple):
    """The facts that an engine's answers depend on, and its number of concurrent requests."""

    facts: dict[str, Any]
    seats: int


class Answered(NamedTuple):
    """The answer to the request at `place`. `beside`: values that depend on other requests."""

    place: int
    status: int
    body: Json
    beside: Json


@dataclass(frozen=True, slots=True)
class Job:
    """A running request."""

    place: int
    head: Head
    asked: Asked
    copies: int
    begin: float
    tickets: list[Ticket]


class Desk:
    """An engine with a synchronous interface: `add` requests, then `step` for one forward pass."""

    def __init__(self, engine: Engine, name: str | None = None, template: str | None = None) -> None:
        card = card_of(engine)
        self._facts = known_facts(card, engine.tokenizer, name, template, ServeOptions().max_queue)
        self._loop = EngineLoop(engine)
        known = {"served_model_name": self._facts.model, "chat_template": template}
        self.about = About(facts_of(engine).facts | known, card.config.max_num_reqs)
        self._ids = count()
        self._tickets: dict[int, Ticket] = {}
        self._jobs: dict[int, Job] = {}  # ticket id -> job
        self._refused: list[Answered] = []

    @property
    def live(self) -> bool:
        """Whether any request is unanswered."""
        return bool(self._jobs or self._refused)

    def add(self, place: int, key: str, content: Json) -> None:
        """Queue a request. The answer to an invalid request is its error."""
        begin = perf_counter()
        try:
            body = _body(content)
            job = self._job(place, key, body, begin)
        except ApiError as error:
            self._refused.append(Answered(place, error.status, error.body, {"seconds": 0.0}))
            return
        for ticket in job.tickets:
            self._tickets[ticket.id] = ticket
            self._jobs[ticket.id] = job
        self._loop.take([ticket.submit for ticket in job.tickets])

    def step(self) -> list[Answered]:
        """Run one forward pass. Return ended answers. Raises DlstepError on repeated failure."""
        ended, self._refused = self._refused, []
        if not self._jobs:
            return ended
        try:
            report = self._loop.step()
        except RuntimeError as error:
            raise DlstepError(f"{MOST_FAILURES + 1} consecutive forward passes failed: {error}") from error
        now = perf_counter()
        for news in report.news:
            ticket = self._tickets[news.id]
            ticket.take(news, now)
            if ticket.ended is not None:
                job = self._jobs.pop(ticket.id)
                del self._tickets[ticket.id]
                if all(each.ended is not None for each in job.tickets):
                    ended.append(self._answered(job, now))
        return ended

    def _job(self, place: int, key: str, body: CompletionRequest | ChatRequest, begin: float) -> Job:
        facts = self._facts
        translate.check_model(facts, body.model)
        asked = translate.completion(facts, body) if isinstance(body, CompletionRequest) else translate.chat(facts, body)
        head = head_for(body, facts.model)
        head = replace(head, id=id_of(head.kind, key), created=created_of(key))
        tickets = [self._ticket(submit, begin) for submit in asked.submits]
        return Job(place, head, asked, body.n or 1, begin, tickets)

    def _ticket(self, submit: Submit, begin: float) -> Ticket:
        return Ticket(submit._replace(id=next(self._ids)), "", begin, _nobody_waits)

    def _answered(self, job: Job, now: float) -> Answered:
        beside: dict[str, Any] = {"seconds": round(now - job.begin, ROUND)}
        if (fault := first_fault(job.tickets)) is not None:
            return Answered(job.place, fault.status, fault.body, beside)
        choices = read_choices(job.tickets, job.head, self._facts)
        body = reply_body(job.head, choices, job.asked.echoes, usage_of(job.tickets, job.copies))
        beside["cached_tokens"] = body["usage"].pop("prompt_tokens_details")["cached_tokens"]
        for name in MEASURED:
            beside[name] = [choice["dlstep"].pop(name) for choice in body["choices"]]
        return Answered(job.place, 200, body, beside)


def _body(content: Json) -> CompletionRequest | ChatRequest:
    """Validate the body of a request. Raises ApiError that names the invalid field."""
    try:
        if not isinstance(content.get("body"), dict):
            raise ApiError(400, "body must be an object, as for the server", param="body")
        line = RequestLine.model_validate(content)
        body = MODELS[line.url].model_validate(line.body)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False)) from error
    if body.stream:
        raise ApiError(400, "stream must be false or left out: a batch does not stream", param="stream")
    if body.dlstep.stream != "settled":
        said = f"dlstep.stream must be settled or left out, got {body.dlstep.stream}: a batch does not stream or keep steps"
        raise ApiError(400, said, param="dlstep.stream")
    return body


def _nobody_waits() -> None:
    """Do nothing: `Desk.step` reads the tickets itself."""
