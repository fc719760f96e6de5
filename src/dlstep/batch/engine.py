"""An engine that answers the requests of a batch as the server would, in this process or in a Ray actor."""

import json
import os
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from traceback import print_exc, print_exception
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ..core import STATUS, DlstepError, Json, Refusal, Refused
from ..core.options import searched
from ..engine.config import EngineConfig
from ..engine.loader import LoadedEngine, load_engine
from ..engine.step_limit import StepLimit, process_limit
from ..serve.engine_loop import MOST_FAILURES, EngineLoop, known_facts
from ..serve.http import translate
from ..serve.http.errors import FAULT, body_of, first_fault, invalid, renaming
from ..serve.http.kinds import KINDS
from ..serve.http.replies import Reply, read_choices
from ..serve.http.schema import ChatRequest, CompletionRequest, ResponsesRequest, Sampling, Strict, fields_of
from ..serve.http.translate import head_for
from ..serve.messages import EngineFailed
from ..serve.router.pending_requests import PendingRequest
from .checkpoint import answered
from .facts import facts_of
from .lines import AnsweredRequest, BatchItem, content_key, created_of

MODELS: dict[str, TypeAdapter[Any]] = {
    "/v1/completions": TypeAdapter(CompletionRequest),
    "/v1/chat/completions": TypeAdapter(ChatRequest),
    "/v1/responses": TypeAdapter(ResponsesRequest),
}
MEASURED = ("nfe", "tokens_per_forward")  # fields of a choice that depend on the batch
ROUND = 6  # decimals of measured seconds
LOADING = 1800.0  # minimum time limit for loading an actor, in seconds


class BatchRequest(Strict):
    """A request without its `custom_id`."""

    method: Literal["POST"]
    url: Literal["/v1/completions", "/v1/chat/completions", "/v1/responses"]
    body: Json


def refused(place: int, refusal: Refusal, beside: Json) -> AnsweredRequest:
    """Return the error that answers the request at `place`."""
    return AnsweredRequest(place, STATUS[refusal.code], body_of(refusal), beside)


class RunningRequest(NamedTuple):
    """A running request."""

    place: int
    reply: Reply
    pending_requests: list[PendingRequest]


class BatchEngine:
    """An engine with a synchronous interface: `add` requests, then `step` for one forward pass.

    `live` is the number of requests without an answer, `seats` the maximum number that run concurrently. The answers
    depend on `facts`. A step of `answers` that exceeds `limit` ends the process.
    """

    def __init__(
        self, engine: LoadedEngine, name: str | None = None, template: str | None = None, limit: StepLimit | None = None
    ) -> None:
        self._known = known_facts(engine)._replace(
            tokenizer=engine.tokenizer,
            model=name or engine.name,
            chat_template=template or engine.chat_template,
        )
        self._loop, self._limit = EngineLoop(engine), limit
        self.facts = facts_of(engine) | {"served_model_name": self._known.model, "chat_template": template}
        self.seats = engine.first.config.max_num_reqs
        self._ids = count()
        self._running: dict[int, tuple[RunningRequest, PendingRequest]] = {}  # by the id of the pending request
        self._refused: list[AnsweredRequest] = []
        self.live = 0

    def answers(self, requests: Sequence[BatchItem]) -> Generator[Sequence[AnsweredRequest]]:
        """Yield the answers to all requests as they arrive."""
        return answered(self, requests, self.seats, self._limit)

    def add(self, place: int, key: str, content: Json) -> None:
        """Queue a request. The answer to an invalid request is its error."""
        self.live += 1
        try:
            running = self._translated(place, key, _body(content))
        except Exception as error:  # noqa: BLE001 - the boundary of a line: its error must not end the other lines
            if not isinstance(error, Refused):
                print_exception(error)
                error = Refused("", "internal_error", FAULT)
            self._refused.append(refused(place, error.refusal, {"seconds": 0.0}))
            return
        self._running |= {pending.id: (running, pending) for pending in running.pending_requests}
        self._loop.execute([pending.submit for pending in running.pending_requests])

    def step(self) -> list[AnsweredRequest]:
        """Run one forward pass. Return the completed answers. Raises DlstepError on repeated failure."""
        ended, self._refused = self._refused, []
        try:
            news_of_all = self._loop.step().news if self._running else ()
        except RuntimeError as error:
            raise DlstepError(f"{MOST_FAILURES + 1} consecutive forward passes failed: {error}") from error
        now = perf_counter()
        for news in news_of_all:
            running, pending = self._running[news.id]
            pending.apply(news, now)
            if pending.ended is not None:
                del self._running[news.id]
                if all(each.ended is not None for each in running.pending_requests):
                    ended.append(self._answered(running, now))
        self.live -= len(ended)
        return ended

    def _translated(self, place: int, key: str, body: Sampling) -> RunningRequest:
        facts, begin, kind = self._known, perf_counter(), KINDS.get(type(body), Reply)
        with renaming(kind.NAMES):
            translate.check_model(facts, body.model)
            chat, constraint = kind.chat_of(body), None
            if translate.constraint_of(chat):
                find = partial(translate.find_constraint, facts, chat, translate.reasoning_before(facts, chat))
                with suppress(Refused):  # the process that compiles it may be killed, so try twice; refusals are cached
                    find()
                constraint = find()
            translated = translate.translated(facts, chat, constraint)
        head = replace(head_for(chat, facts.model, kind.PREFIX), name=key, created=created_of(key))
        submits = [each._replace(request=replace(each.request, id=next(self._ids))) for each in translated.submits]
        # `step` reads the pending requests itself, so their changes need no notice.
        pending_requests = [PendingRequest(submit, "", begin, lambda: None) for submit in submits]
        reply = kind(head, body, read_choices(pending_requests, head, facts), translated.echoes)
        return RunningRequest(place, reply, pending_requests)

    def _answered(self, running: RunningRequest, now: float) -> AnsweredRequest:
        beside: Json = {"seconds": round(now - running.pending_requests[0].arrived, ROUND)}
        if (fault := first_fault(running.pending_requests)) is not None:
            return refused(running.place, fault, beside)
        body = running.reply.whole()
        usage, answers = body["usage"], [body]
        if "choices" in body:
            body["choices"] = answers = [*body["choices"]]
        details = usage.pop("prompt_tokens_details", None) or usage.pop("input_tokens_details")
        beside["cached_tokens"] = details["cached_tokens"]
        for name in MEASURED:
            beside[name] = [answer["dlstep"].pop(name) for answer in answers]
        return AnsweredRequest(running.place, 200, body, beside)


def _body(content: Json) -> Sampling:
    """Validate the body of a request as the server does. Raises Refused that names the invalid field."""
    try:
        request = BatchRequest.model_validate(content)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False), BatchRequest.model_fields) from error
    body = fields_of(json.dumps(request.body).encode(), MODELS[request.url])
    if body.stream:
        raise Refused("stream", "unsupported", "must be false or left out: a batch does not stream")
    if body.dlstep.stream != "settled":
        raise Refused(
            "dlstep.stream",
            "unsupported",
            f"must be settled or left out, got {body.dlstep.stream}: a batch does not stream or keep steps",
        )
    return body


class EngineSource(NamedTuple):
    """Arguments to load an engine in an actor. Relative paths of strategies and rules start at `folder`."""

    config: EngineConfig
    name: str | None
    template: str | None
    folder: str

    def load(self) -> BatchEngine:
        """Load the engine."""
        with searched(Path(self.folder)):
            return BatchEngine(load_engine(self.config), self.name, self.template)


def about(source: EngineSource) -> tuple[Json, int] | EngineFailed:
    """Return the facts of an engine and its number of concurrent requests, or the reason why it could not be created."""
    try:
        engine = source.load()
        return engine.facts, engine.seats
    except (ValueError, OSError, DlstepError) as error:
        return EngineFailed(str(error))


class EngineActor:
    """The engine of a Ray actor, which answers a batch of rows with `place` and `content` (JSON).

    Ray Data calls it from several threads; the requests of all calls are decoded together. The class does not import Ray.
    If a forward pass takes longer than `engine_timeout` allows, the process ends, so that Ray restarts the actor.
    """

    def __init__(self, engine_timeout: float, source: EngineSource) -> None:
        with process_limit(max(LOADING, engine_timeout)):
            self._engine = source.load()
        self._limit = StepLimit(engine_timeout)
        self._questions: SimpleQueue[tuple[Json, Future[str]]] = SimpleQueue()
        Thread(target=self._decode, name="dlstep-engine", daemon=True).start()

    def __call__(self, rows: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the answers to the rows as JSON texts of `key`, status, body and `beside`."""
        answers = [Future[str]() for _ in rows["content"]]
        for content, answer in zip(rows["content"], answers, strict=True):
            self._questions.put((json.loads(content), answer))
        return {"place": [int(place) for place in rows["place"]], "answer": [answer.result() for answer in answers]}

    def _decode(self) -> None:
        """Answer requests as they come. End the process if the engine fails, so that Ray starts a new one."""
        numbers, live = count(), dict[int, tuple[str, Future[str]]]()
        try:
            while True:
                while not (live and self._questions.empty()):
                    content, answer = self._questions.get()
                    number, key = next(numbers), content_key(self._engine.facts, content)
                    live[number] = key, answer
                    self._engine.add(number, key, content)
                with self._limit.enforced():
                    answered = self._engine.step()
                for number, *parts in answered:
                    key, answer = live.pop(number)
                    answer.set_result(json.dumps([key, *parts]))
        except BaseException:  # noqa: BLE001 - the boundary of the actor: without an exit, calls would wait forever
            print_exc()
            os._exit(1)
