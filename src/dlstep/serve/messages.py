"""Messages between the HTTP process and the engine: plain values, whatever carries them."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..core import Config, SamplingParams, Strategy
from ..core.ledger import Ending
from ..core.options import StrategyOptions
from ..frames import Frame


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of an engine without its weights: enough to check, encode and render requests.

    `folder` holds the tokenizer; None where the engine has none, or brings it along.
    """

    name: str
    config: Config
    strategy: Strategy
    folder: Path | None
    prompt_end: str
    chat_template: str | None


class Failed(NamedTuple):
    """The engine could not be made, for a reason in words. Nothing follows."""

    error: str


class Origin(NamedTuple):
    """Where a fork begins: after forward `seq` of a kept request, and what is other from there on; None leaves it."""

    id: int
    seq: int
    changes: StrategyOptions = ()
    seed: int | None = None
    temperature: float | None = None


class Submit(NamedTuple):
    """Answer a prompt. `drafts`: tell of the window after every forward; `probabilities`: tell those of settled tokens.

    `steps`: tell a frame of each forward; `keeps`: keep what the answer was after it until a `Drop`. `origin` makes it a fork.
    Only prompts with the same `salt` share pages.
    """

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams
    index: int = 0
    drafts: bool = False
    probabilities: bool = False
    steps: bool = False
    keeps: bool = False
    origin: Origin | None = None
    salt: bytes = b""


class Cancel(NamedTuple):
    """End a request, for a reason in words; nothing happens if it has ended."""

    id: int
    reason: str = ""


class Drop(NamedTuple):
    """Keep the steps of a request no longer."""

    id: int


Command = Submit | Cancel | Drop


class News(NamedTuple):
    """The changes that a step made to one request.

    `tokens` became settled; `cells` are token (None: undecided) and probability of each position behind them. `cached` prompt
    tokens were found in pages of earlier requests. Where steps are told, `frames` hold the news in place of tokens and cells.
    """

    id: int
    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    cells: tuple[tuple[int | None, float], ...]
    steps: int
    nfe: int
    cached: int
    ending: Ending | None
    frames: tuple[Frame, ...] = ()


class Work(NamedTuple):
    """The work done since the last report.

    `wasted` rows were fed for answers that nobody gets, or fed again; `cpu_seconds` are those of the engine's process,
    `busy_seconds` those that passed while there was something to do.
    """

    sampling_forwards: int = 0
    storing_forwards: int = 0
    rows: int = 0
    wasted: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cpu_seconds: float = 0.0
    busy_seconds: float = 0.0


class Load(NamedTuple):
    """Requests and pages of the engine now."""

    running: int = 0
    waiting: int = 0
    pages_owned: int = 0
    pages_cached: int = 0
    pages_free: int = 0


class Report(NamedTuple):
    """One step, for all requests."""

    news: tuple[News, ...]
    work: Work
    load: Load


Message = Card | Failed | Report
