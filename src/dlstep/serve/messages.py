"""Messages between the HTTP process and the engine, and the facts of the model that the HTTP process needs: plain values."""

from pathlib import Path
from typing import Any, NamedTuple

from .. import tiny
from ..core import Ids, Probabilities, Refusal, Request, State, StrategyOptions
from ..core.sequence import Best, FinishInfo
from ..text.detokenize import Tokenizer
from ..text.read_templates import ReadTemplate
from ..views.frames import Frame
from ..views.usage import Work


class Facts(NamedTuple):
    """The facts of a loaded engine without its weights: enough to check, encode and render requests.

    The engine sends them without a tokenizer, which `folder` holds (None: there is none to load). `first` is the
    engine's state before any request; `model` is the model name that clients use. One body may request at most
    `most_answers` answers. The steps of a body with at most `most_kept` answers are kept.
    `problem` states why the engine can answer no request; empty if it can. `result` and `refusal` are those of its last
    `ChangeEngine`.
    """

    first: State
    folder: Path | None
    prompt_end: str
    chat_template: str | None
    max_tokens: int
    model: str
    tokenizer: Tokenizer | None = None
    most_answers: int = 256
    most_kept: int = 0
    problem: str = ""
    result: Any = None
    refusal: Refusal | None = None


def description_of(facts: Facts) -> str | None:
    """Return what an embedded model is for, and how to load another model; None for any other model."""
    if not tiny.is_embedded(facts.folder):
        return None
    return f"{tiny.PURPOSE[0].upper()}{tiny.PURPOSE[1:]}. {tiny.REMEDY[0].upper()}{tiny.REMEDY[1:]}."


class EngineFailed(NamedTuple):
    """The engine could not be created, for the reason in `error`. No message follows."""

    error: str


class Origin(NamedTuple):
    """Where a fork starts: after frame `seq` of kept request `id`. None: unchanged."""

    id: int
    seq: int
    changes: StrategyOptions = ()
    seed: int | None = None
    temperature: float | None = None


class Submit(NamedTuple):
    """Command to answer a prompt.

    Attributes:
        request: The request, already checked; of a fork, the engine uses only the prompt and the parameters.
        drafts: Whether to report the window after each forward pass.
        probabilities: Whether to report the probabilities of settled tokens.
        steps: Whether to report a frame of each forward pass.
        keeps: With `steps`: whether to keep the sequence after each forward pass, for forks.
        origin: Where the request starts if it is a fork.
        template: The template, if the request is a read. The probabilities of all labels, slot by slot,
            are reported as `probabilities`.
        may_be_cut: Whether the answer may end without satisfying its constraint, if too few tokens are left.
    """

    request: Request
    drafts: bool = False
    probabilities: bool = False
    steps: bool = False
    keeps: bool = False
    origin: Origin | None = None
    template: ReadTemplate | None = None
    may_be_cut: bool = False

    @property
    def id(self) -> int:
        """The id of the request."""
        return self.request.id


class Cancel(NamedTuple):
    """Command to end a request, with a readable `reason`. No effect if it has ended.

    `unstarted`: no effect, either, if a forward pass has included the request.
    """

    id: int
    reason: str = ""
    unstarted: bool = False


class Drop(NamedTuple):
    """Command to discard the kept steps of a request."""

    id: int


class ChangeEngine(NamedTuple):
    """Command to call a method of a `WeightsDriver` while no request is live. The engine answers with its facts.

    `needed`: an engine that refuses this update can answer no request, because other engines have made it.
    """

    method: str
    arguments: tuple[Any, ...]
    needed: bool = False


Command = Submit | Cancel | Drop | ChangeEngine


Window = tuple[tuple[int | None, ...], Probabilities]
EMPTY_WINDOW: Window = (), ()


class News(NamedTuple):
    """The changes that a step made to one request.

    `tokens` are newly settled. `window` holds the tokens (None: masked) and the probabilities of the
    positions after them, if the client wants drafts. `best` has the most probable ids at each of
    `tokens`, if the request asks for them, and `step_map` comes with `finish_info`. `cached` counts prompt tokens found in
    pages of earlier requests. With `steps`, `frames` replaces `tokens`, `probabilities` and `window`.
    """

    id: int
    tokens: Ids
    probabilities: Probabilities
    window: Window
    steps: int
    nfe: int
    cached: int
    finish_info: FinishInfo | None
    frames: tuple[Frame, ...] = ()
    best: tuple[Best, ...] = ()
    step_map: dict[str, object] | None = None


class EngineLoad(NamedTuple):
    """The current numbers of requests and pages in the engine."""

    running: int = 0
    pages_owned: int = 0
    pages_cached: int = 0
    pages_free: int = 0


class StepReport(NamedTuple):
    """The changes that one step made to all requests, the work since the last report, and the load.

    `cpu_seconds` is the CPU time of the engine process since the last report; `busy_seconds` is the
    wall-clock time in which it had requests.
    """

    news: tuple[News, ...]
    work: Work
    load: EngineLoad
    cpu_seconds: float = 0.0
    busy_seconds: float = 0.0
