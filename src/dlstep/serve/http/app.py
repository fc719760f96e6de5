"""The routes of the server. Checks that apply to all routes are in `guards`."""

import mimetypes
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from openai.types import Completion
from openai.types.chat import ChatCompletion
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from ... import __version__
from ...core import Json, Refused, Texts
from ...core.automaton import Automaton
from ...text import constraints
from ...views.page import FOLDER
from .. import shapes
from ..messages import Facts, description_of
from ..router.pending_requests import Head
from ..router.recording_store import KeptRequest
from ..router.router import Router
from ..shapes import METRICS, READY, answered, streamed
from . import recordings, translate
from .admin import Admin
from .answers import AnswerJob, Body, RequestLog, unless_gone
from .choosable import choices_of
from .errors import json_response, renaming, response_of
from .guards import OPEN, CheckedRoute, FairWorker, Guard, WorkerThread, hosts_of
from .kinds import KINDS
from .recordings import forked
from .replies import Reply
from .schema import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ForkRequest,
    MessagesRequest,
    ReadRequest,
    ResponsesRequest,
    TokenizeRequest,
)
from .translate import TranslatedBody, head_for, read

MOST_TEXTS = 256  # bodies that may wait to be parsed or encoded (or max_queue, if larger)
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # another version of the server may use this address later
}
mimetypes.add_type("text/javascript", ".js")  # the registry of Windows may have another type, which browsers refuse


class Api:
    """The route handlers and their shared state: the router, running jobs, and worker threads."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self._jobs: dict[str, AnswerJob] = {}
        self._choices: tuple[Facts, shapes.Choices] | None = None  # cached for the current engine
        self.log = RequestLog(router)
        # Long texts may take seconds to encode. Tokenizers are not thread-safe, hence one thread.
        options, refused = router.options, router.metrics.refused
        self.worker = WorkerThread("dlstep-texts", max(MOST_TEXTS, options.max_queue), refused, options.engine_timeout)
        self._steps = WorkerThread("dlstep-steps", MOST_TEXTS, refused)
        self._compiler = FairWorker("dlstep-constraints", MOST_TEXTS, refused, constraints.stop)

    async def completions(self, request: Request, body: CompletionRequest) -> Response:
        """Continue prompts."""
        return await self._replied(request, body)

    async def chat_completions(self, request: Request, body: ChatRequest) -> Response:
        """Answer a conversation with the assistant's next turn."""
        return await self._replied(request, body)

    async def responses(self, request: Request, body: ResponsesRequest) -> Response:
        """Answer a conversation like a chat, in the format of OpenAI's Responses API."""
        return await self._replied(request, body)

    async def messages(self, request: Request, body: MessagesRequest) -> Response:
        """Answer a conversation like a chat, in the format of Anthropic's Messages API."""
        return await self._replied(request, body)

    async def _replied(self, request: Request, body: Any) -> Response:
        """Translate a body, once its constraint is compiled, and answer it."""
        facts, kind = self.router.facts, KINDS.get(type(body), Reply)
        with renaming(kind.NAMES):
            translate.check_model(facts, body.model)
            chat = body if kind is Reply else await self.worker.run(kind.chat_of, body)
            constraint = await self._constraint(request, chat)
            translated = await self.worker.run(translate.translated, facts, chat, constraint)
            return await self._answer(request, body, translated, head_for(chat, facts.model, kind.PREFIX), kind)

    async def _constraint(self, request: Request, body: CompletionRequest | ChatRequest) -> Automaton | None:
        """Return the automaton of a body's constraint. Only bodies whose constraint is not cached wait for their turn."""
        if not translate.constraint_of(body):
            return None
        facts = self.router.facts
        find = partial(translate.find_constraint, facts, body, await self.worker.run(translate.reasoning_before, facts, body))
        if (known := await self.worker.run(find, constraints.known)) is not None:
            return known
        compiling = self._compiler.run_for(
            request.scope["owner"], lambda event: find(partial(constraints.compiled, stopped=event))
        )
        return await unless_gone(request.receive, compiling)

    async def reads(self, request: Request, body: ReadRequest) -> Response:
        """Return the probabilities of labels at the slots of a template, after each prompt."""
        translate.check_model(self.router.facts, body.model)
        translated = await self.worker.run(read, self.router.facts, body)
        return await self._answer(request, body, translated, Head("read", self.router.facts.model, False))

    async def fork(self, request: Request, request_id: str, body: ForkRequest) -> Response:
        """Continue from a step of a kept request with changed options."""
        kept = self._kept(request, request_id)
        translated = await self.worker.run(forked, self.router.facts, kept, body)
        self._kept(request, request_id)  # raises if it was dropped in the meantime
        origin = shapes.ForkOrigin(request=request_id, index=body.index, seq=body.seq)
        return await self._answer(request, body, translated, kept.head.of_fork(origin))

    def _kept(self, request: Request, request_id: str) -> KeptRequest:
        return recordings.kept_of(self.router, request_id, request.scope["owner"])

    async def steps(self, request: Request, request_id: str, after: Annotated[int, Query(ge=-1, le=1 << 53)] = -1) -> Response:
        """Return the steps of a request so far, as a recording. Raises Refused if not kept."""
        kept = self._kept(request, request_id)
        text = await self._steps.run(recordings.recording, self.router.facts, kept, after)
        return Response(text, media_type="application/json")

    async def requests(self, request: Request) -> Response:
        """Return the requests of this API key that are running or whose steps are kept."""
        owner = request.scope["owner"]
        running = [job for job in self._jobs.values() if job.owner == owner]
        return json_response(recordings.listed(self.router, owner, running))

    async def options(self) -> Response:
        """Return the options that a request may set (strategy, rules), and example prompts."""
        facts = self.router.facts
        if self._choices is None or self._choices[0] is not facts:
            self._choices = facts, await self.worker.run(choices_of, facts)
        return json_response(self._choices[1])

    async def _answer(
        self, request: Request, body: Body, translated: TranslatedBody, head: Head, kind: type[Reply] = Reply
    ) -> Response:
        job = AnswerJob(self.router, head, body, translated, request.scope["owner"], self._ended, kind)
        self._jobs[head.id] = job
        return await (job.stream(request) if body.stream else job.whole(request))

    def _ended(self, job: AnswerJob) -> None:
        del self._jobs[job.head.id]
        self.log.write(job)

    async def cancel(self, request: Request, request_id: str) -> Response:
        """End a request of the same API key; its answers end with their settled tokens."""
        job = self._jobs.get(request_id)
        if job is None or job.owner != request.scope["owner"]:
            raise Refused("request_id", "request_not_found", "no request with this id is running")
        job.cancel("the request was cancelled")
        return json_response(shapes.Cancelled(id=request_id, cancelled=True))

    async def model(self, model: str) -> Response:
        """Return the served model. Raises Refused for an unknown name."""
        translate.check_model(self.router.facts, model)
        return json_response(self._model())

    def _model(self) -> shapes.ModelCard:
        facts = self.router.facts
        return shapes.ModelCard(
            id=facts.model,
            object="model",
            created=0,
            owned_by="dlstep",
            max_model_len=facts.first.config.max_model_len,
            description=description_of(facts),
        )

    async def models(self) -> Response:
        """Return the list of models, which contains the one served model."""
        return json_response(shapes.ModelList(object="list", data=[self._model()]))

    async def tokenize(self, body: TokenizeRequest) -> Response:
        """Return the token ids of a prompt or a conversation."""
        translate.check_model(self.router.facts, body.model)
        return json_response(await self.worker.run(translate.tokenized, self.router.facts, body))

    async def detokenize(self, body: DetokenizeRequest) -> Response:
        """Return the text of token ids, special tokens included."""
        translate.check_model(self.router.facts, body.model)
        return json_response(await self.worker.run(translate.detokenized, self.router.facts, body))

    async def health(self) -> Response:
        """Return status 200: the server process is responding."""
        return json_response(shapes.Health(status="ok"))

    async def ready(self) -> Response:
        """Return 200 if requests can be answered, else 503 and the reason."""
        reason, router = self.router.not_ready_reason(), self.router
        replicas = [
            shapes.ReplicaState(
                replica=replica.number,
                status=replica.phase,
                deaths=replica.deaths,
                last_death=replica.died.ending if replica.died else None,
            )
            for replica in router.replicas
        ]
        body = shapes.Readiness(status=router.phase, engine_deaths=router.deaths, reason=reason, replicas=replicas)
        return json_response(body, 503 if reason else 200)

    async def version(self) -> Response:
        """Return the version of dlstep."""
        return json_response(shapes.Version(version=__version__))

    async def schema(self, request: Request) -> Response:
        """Return the OpenAPI schema. Building it takes 0.25 s, so the worker thread does it."""
        return json_response(await self.worker.run(request.app.openapi))

    async def metrics(self) -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(self.router.metrics.text(), media_type="text/plain; version=0.0.4")


class PageFiles(StaticFiles):
    """The page's files, with headers that allow no external resources."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file, or 304 if the browser has it."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(PAGE_HEADERS)
        return response


async def index() -> Response:
    """Return the page."""
    return FileResponse(FOLDER / "index.html", headers=PAGE_HEADERS)


def create_app(router: Router, keys: Texts = (), admin_keys: Texts = ()) -> FastAPI:
    """Build the application. The caller enters `router`.

    Without `keys`, no API key is required. Without `admin_keys`, there are no routes for administrators.
    """
    app = FastAPI(
        title="dlstep", version=__version__, openapi_url=None, docs_url=None, redoc_url=None, strict_content_type=False
    )
    api = Api(router)
    app.router.route_class, options = CheckedRoute, router.options
    app.state.worker, app.state.log, app.state.options = api.worker, api.log, options
    admin = Admin(router).routes if admin_keys else {}
    security = [Security(HTTPBearer(auto_error=False))]  # for the schema; the guard checks keys
    for method, path, function, responses in (
        ("POST", "/v1/completions", api.completions, streamed(Completion)),
        ("POST", "/v1/chat/completions", api.chat_completions, streamed(ChatCompletion)),
        ("POST", "/v1/responses", api.responses, streamed(Json)),
        ("POST", "/v1/messages", api.messages, streamed(Json)),
        ("POST", "/v1/reads", api.reads, answered(shapes.ReadsReply)),
        ("POST", "/v1/requests/{request_id}/cancel", api.cancel, answered(shapes.Cancelled)),
        ("POST", "/v1/requests/{request_id}/fork", api.fork, streamed(Completion, ChatCompletion)),
        ("GET", "/v1/requests/{request_id}/steps", api.steps, answered(shapes.Recording)),
        ("GET", "/v1/requests", api.requests, answered(shapes.RequestList)),
        ("GET", "/v1/options", api.options, answered(shapes.Choices)),
        ("GET", "/v1/models", api.models, answered(shapes.ModelList)),
        ("GET", "/v1/models/{model:path}", api.model, answered(shapes.ModelCard)),
        ("POST", "/tokenize", api.tokenize, answered(shapes.Tokenized)),
        ("POST", "/detokenize", api.detokenize, answered(shapes.Detokenized)),
        ("GET", "/health", api.health, answered(shapes.Health)),
        ("GET", "/ready", api.ready, READY),
        ("GET", "/version", api.version, answered(shapes.Version)),
        *[("POST", path, function, answered(shapes.AdminReply)) for path, function in admin.items()],
    ):
        needs = security if path in admin or (keys and path not in OPEN) else []
        app.add_api_route(path, function, methods=[method], responses=responses, response_model=None, dependencies=needs)
    app.add_api_route("/metrics", api.metrics, responses=METRICS, response_class=PlainTextResponse)
    for path, function in (("/openapi.json", api.schema), ("/", index)):
        app.add_api_route(path, function, include_in_schema=False)
    app.mount("/page", PageFiles(directory=FOLDER))
    for error in (Refused, RequestValidationError, HTTPException, ClientDisconnect, 500):
        app.add_exception_handler(error, response_of)
    app.add_middleware(Guard, names=hosts_of(options), keys=keys, others=dict.fromkeys(admin, admin_keys))
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=options.allowed_origins, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    return app
