"""A request: its prompt, how to sample, and when to stop. All values are immutable.

The core finds processors by name and stores them in requests; the driver calls them.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from inspect import signature
from itertools import chain
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from annotated_types import Gt, Interval

from .automaton import Automaton
from .checks import Texts, check_ranges, did_you_mean, listed, pairs_of, plain, short
from .errors import Refused
from .options import Options, PluginGroup, StrategyOptions, sorted_options, unknown_option, with_options
from .spec import LARGEST, Ids, Pins, Positions, PositiveInt, Share, Spec

Given = ParamSpec("Given")
Result = TypeVar("Result")
Probability = Annotated[float, Interval(ge=0.0, le=1.0)]
Seed = Annotated[int, Interval(ge=-(1 << 63), le=(1 << 64) - 1)]  # 64 bits, signed or unsigned
CONSTRAINTS = ("regex", "choice", "grammar", "json_schema")
SEEDS = 1 << 64
COLDEST = 1e-30  # with a lower temperature, scaled logits overflow single precision


@dataclass(frozen=True, slots=True)
class SoFar:
    """The tokens of a request when a forward pass feeds it."""

    tokens: Ids
    """Token ids from position 0 on: prompt, unmasked and pinned tokens, also after the fed rows; elsewhere the mask id."""
    prompt_length: int
    """Number of tokens of the prompt."""


@dataclass(frozen=True, slots=True)
class Context:
    """The input of a processor besides the logits."""

    positions: Positions
    """Position that each row of logits predicts, ascending."""
    so_far: SoFar
    """The tokens of the request."""
    params: "SamplingParams"
    """Sampling parameters of the request."""
    spec: Spec
    """Facts of the model."""
    unguided: Any = None
    """The network's logits of the same rows for a masked prompt; None unless a processor of the request is `guided`."""


@dataclass(frozen=True, slots=True)
class Processor(Options, ABC):
    """A pure function of a request's logits, applied before its constraint, temperature and statistics.

    A subclass is a frozen dataclass; its fields are options.
    """

    @property
    def guided(self) -> bool:
        """Whether the processor reads `context.unguided`. If so, the network runs twice in each pass."""
        return False

    @abstractmethod
    def process(self, logits: Any, context: Context) -> Any:
        """Return the logits to sample from, a tensor of the same shape.

        Args:
            logits: Tensor [rows, ids] in fp32, one row for each sampled position. It includes the mask id and ids
                beyond the vocabulary, which are never sampled.
            context: Positions, tokens and parameters of the request.
        """


PLUGINS = PluginGroup("processor", "PROCESSOR", "dlstep.processors", Processor, ("rule", "dlstep.rules"))


def processors_of(given: object) -> tuple[Processor, ...]:
    """Return processors from a mapping of names to options, or from one or several names, classes and instances.

    Raises Refused for other types, for an unknown name or option, and for a value out of range.
    """
    many = listed(given)
    try:
        return tuple(chain.from_iterable(map(_named, (given,) if many is None else many)))
    except ValueError as error:
        code = error.refusal.code if isinstance(error, Refused) else "invalid_value"
        raise Refused("processors", code, f"{short(given)} cannot be used: {error}") from None


def _named(given: Any) -> list[Processor]:
    if not isinstance(given, dict):
        return [PLUGINS.value(given)]
    return [_with_options(*pair) for pair in cast("dict[Any, Any]", given).items()]


def _with_options(name: Any, given: Any) -> Processor:
    options = pairs_of(given or {})
    if options is None or not all(isinstance(option, str) for option, _ in options):
        raise ValueError(f"processor {short(name)} takes a mapping of option names to values, got {short(given)}")
    return with_options(PLUGINS.value(name), dict(options))


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample an answer, and where it ends.

    The command line and the HTTP schema show the docstrings of the fields as their help.

    Raises:
        Refused: For a field that is out of range or contradicts another one.
    """

    max_tokens: PositiveInt = 512
    """Maximum number of tokens of an answer. On the command line and over HTTP, null means all that
    `max_model_len` leaves after the prompt; for a network whose canvas is as long as the answer, 512
    unless the model's folder sets another default. A value that does not fit after the prompt is refused there.
    Python reduces it, with a warning unless it is the default."""
    temperature: Annotated[float, Interval(ge=0.0, le=1e30)] = 0.0
    """0 samples the most probable token; higher values flatten the distribution."""
    top_k: Annotated[int, Interval(ge=0, le=LARGEST)] = 0
    """Sample from this many most probable tokens; 0 samples from all. No effect at temperature 0, like `top_p`, `min_p` and
    seeds."""
    top_p: Share = 1.0
    """Sample from the most probable tokens that together have this probability."""
    min_p: Probability = 0.0
    """Sample from tokens with at least this fraction of the best token's probability."""
    seed: Seed | None = None
    """Seed of the samples. By default it is derived from the engine's seed and the prompt."""
    n: Annotated[int, Interval(ge=1, le=10_000)] = 1
    """Number of answers to a prompt; if a seed is set, answer i uses the seed plus i."""
    seeds: tuple[int, ...] = ()
    """One seed for each of several answers to a prompt, instead of `n` and `seed`."""
    ignore_eos: bool = False
    """Continue after an end-of-sequence token."""
    stop_token_ids: Ids = ()
    """Ids that end an answer."""
    stop: Texts = ()
    """Texts that end an answer; the answer is cut before the first one (needs a tokenizer)."""
    max_nfe: PositiveInt | None = None
    """Maximum number of sampling forward passes."""
    max_repetition_run: Annotated[int, Gt(1)] | None = None
    """End an answer once this many tokens in a row are equal."""
    strategy_options: StrategyOptions = ()
    """Options of the strategy by name, for this request only."""
    pinned: Pins = ()
    """Token ids by offset in the answer, counted from 0; fixed like the prompt."""
    suffix: Ids = ()
    """Token ids after the gap that the answer fills (dreamon)."""
    canvas: Ids = ()
    """Ids of the initial canvas instead of random ones (diffusion_gemma); pinned tokens win."""
    regex: str | None = None
    """A regular expression that the whole answer matches."""
    choice: Texts = ()
    """Texts, one of which is the answer."""
    grammar: str | None = None
    """A grammar in GBNF or Lark's syntax that derives the whole answer; on the command line, a file or its text."""
    json_schema: str | None = None
    """A JSON schema that the answer conforms to; also a dictionary or a pydantic class."""
    end_reserve: PositiveInt | None = None
    """Under a constraint, keep this many times as many tokens free as the shortest valid rest of the answer takes, if
    possible, so that a long string does not use up all tokens. 1 excludes no valid answer. By default 2 with `json_schema`,
    otherwise 1. No effect with `pinned`."""
    top_logprobs: Annotated[int, Interval(ge=0, le=20)] = 0
    """How many of the most probable tokens to report for each token of the answer."""
    step_map: bool = False
    """Return a step map: which forward pass set each token, with its log-probabilities (`Output.step_map`)."""
    processors: tuple[Processor, ...] = ()
    """Processors, which change the logits before sampling, in order: a mapping from names or .py paths to
    options, like {"min_tokens": {"count": 8}}, or a list of names, .py paths and instances."""

    def __post_init__(self) -> None:
        if listed(self.processors) != ():
            object.__setattr__(self, "processors", processors_of(self.processors))
        if self.json_schema is not None:
            object.__setattr__(self, "json_schema", schema_text(self.json_schema))
        check_ranges(self)
        if len(given := [name for name in CONSTRAINTS if getattr(self, name) not in (None, ())]) > 1:
            raise Refused(given[-1], "conflict", f"an answer has one constraint, got {' and '.join(given)}: give one of them")
        object.__setattr__(self, "pinned", sorted_pins(self.pinned, self.max_tokens))
        object.__setattr__(self, "strategy_options", sorted_options("strategy_options", self.strategy_options))
        if 0 < self.temperature < COLDEST:
            raise Refused("temperature", "out_of_range", f"must be 0 or at least {COLDEST}, got {self.temperature}")
        if self.seeds and (self.n, self.seed) != (1, None):
            raise Refused("seeds", "conflict", "they set the number of answers and the seed of each: leave out n and seed")
        if "" in self.stop:
            raise Refused("stop", "invalid_value", f"must hold texts that are not empty, got {short(self.stop)}")

    @property
    def constraint_source(self) -> tuple[str, str] | None:
        """Name and text of the constraint; None without one."""
        for name in CONSTRAINTS:
            if (given := getattr(self, name)) not in (None, ()):
                return name, json.dumps(given) if name == "choice" else given
        return None

    @property
    def each(self) -> tuple["SamplingParams", ...]:
        """The parameters of each answer to a prompt; only this value unless `n` or `seeds` is set."""
        if self.seeds:
            return tuple([replace(self, seeds=(), seed=seed) for seed in self.seeds])
        if self.n == 1:
            return (self,)
        first = replace(self, n=1)
        if self.seed is None:
            return (first,) * self.n
        return first, *[replace(first, seed=(self.seed + number) % SEEDS) for number in range(1, self.n)]

    def processed(self, processors: tuple[Processor, ...]) -> "SamplingParams":
        """Return the parameters with the given processors before their own.

        Args:
            processors: The processors of the engine.
        """
        return replace(self, processors=processors + self.processors) if processors else self

    def shortened(self, max_tokens: int) -> "SamplingParams":
        """Return the parameters with fewer tokens, without pinned tokens past the new end.

        Args:
            max_tokens: The new maximum number of tokens of the answer.
        """
        return replace(self, max_tokens=max_tokens, pinned=[pin for pin in self.pinned if pin[0] < max_tokens])


def explains(owner: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Return a decorator that makes unknown keywords raise a TypeError, which says where they belong.

    `owner` is the name of the function in messages.
    """

    def decorated(function: Callable[Given, Result]) -> Callable[Given, Result]:
        known = frozenset(signature(function).parameters) - {"self"}

        @wraps(function)
        def checked(*arguments: Given.args, **options: Given.kwargs) -> Result:
            for name in options.keys() - known:
                hint = did_you_mean(name, known) or _place_of(name, options[name])
                raise TypeError(unknown_option(owner, name, options[name], known, hint))
            return function(*arguments, **options)

        return checked

    return decorated


def _place_of(name: str, value: object) -> str:
    """Return where an option of a request belongs."""
    if name in (field.name for field in fields(SamplingParams)):
        return f"it belongs in SamplingParams({name}={short(value)})"
    return f"an option of the strategy belongs in SamplingParams(strategy_options={{{name!r}: {short(value)}}})"


SamplingParams.__init__ = explains("SamplingParams")(SamplingParams.__init__)


def schema_text(given: Any) -> str:
    """Return a JSON schema as text: from text, a dictionary, or a pydantic class.

    Raises Refused if it is none of them.
    """
    schema: Any = given.model_json_schema() if hasattr(given, "model_json_schema") else given
    try:
        read = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(read, dict):
            raise ValueError('it is not an object with keywords, like {"type": "object"}')
        return json.dumps(read)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(
            "json_schema",
            "invalid_value",
            f"must be a JSON schema (a dictionary, text, or a pydantic class), got {short(given)}: {error}",
        ) from error


def sorted_pins(given: object, max_tokens: int) -> Pins:
    """Return pinned tokens from a mapping or from (offset, id) pairs, sorted by offset.

    Raises Refused for an invalid or repeated offset, and for a wrong type. `refusal` checks the ids.
    """
    pairs, form = pairs_of(given), "must be a mapping of offsets in the answer to token ids, got"
    if pairs is None:
        raise Refused("pinned", "invalid_type", f"{form} {short(given)}")
    kept: dict[int, int] = {}
    for pair in pairs:
        parts = listed(pair)
        offset, token = [plain(part) for part in parts] if parts is not None and len(parts) == 2 else (None, None)
        if type(offset) is not int or type(token) is not int:
            raise Refused("pinned", "invalid_type", f"{form} the entry {short(pair)}")
        if not 0 <= offset < max_tokens:
            raise Refused(
                "pinned",
                "out_of_range",
                f"must have offsets from 0 to {max_tokens - 1}, below max_tokens, got {short(offset)}",
            )
        if offset in kept:
            raise Refused("pinned", "conflict", f"must not repeat an offset, got {offset} twice: keep one token for it")
        kept[offset] = token
    return tuple(sorted(kept.items()))


@dataclass(frozen=True, slots=True)
class Who:
    """The part of a request that a device needs to run a span.

    Spans hold this part instead of the request, so that plans stay small: a trace records the plan of each forward pass,
    and would otherwise store the prompt and the automaton once per pass.
    """

    id: int
    """The caller's id of the request, which a later request may reuse."""
    seq_id: int
    """Sequence number of the request, which is never used again."""
    params: SamplingParams
    """Sampling parameters of the request."""
    seed: int
    """Seed of the request."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to answer.

    Raises:
        Refused: If the prompt is empty or a field is out of range.
    """

    id: int
    """Number chosen by the caller, unique among the requests of a state."""
    prompt: Ids
    """Token ids of the prompt, at least one."""
    params: SamplingParams = field(default=SamplingParams())
    """How to sample the answer, and where it ends."""
    seed: Seed = 0
    """Seed of the samples, which `add` fills in."""
    seq_id: int = -1
    """Sequence number, which `add` or `adopt` assigns; a state never assigns it twice."""
    index: Annotated[int, Interval(ge=0, le=(1 << 63) - 1)] = 0
    """Number that separates equal requests of one call, so that they get different seeds."""
    salt: bytes = b""
    """Only requests with equal salts share KV cache pages."""
    automaton: Automaton | None = None
    """Automaton that accepts valid answers; None: any answer."""
    who: Who = field(init=False, repr=False, compare=False)
    """The part of the request that each of its spans has."""

    def __post_init__(self) -> None:
        check_ranges(self)
        object.__setattr__(self, "who", Who(self.id, self.seq_id, self.params, self.seed))
        if not self.prompt:
            raise Refused("prompt", "missing", "it is empty: give at least one token")
        if self.params.n > 1 or self.params.seeds:
            raise Refused("params", "conflict", "a request has one answer: give each of `params.each` to a request of its own")

    @property
    def start(self) -> int:
        """First position of the answer: the number of tokens of the prompt."""
        return len(self.prompt)

    def room(self, max_model_len: int) -> int:
        """Return how many tokens prompt and suffix leave for the answer; negative if they are too long.

        Args:
            max_model_len: Maximum number of tokens of prompt, answer and suffix together.
        """
        return max_model_len - len(self.prompt) - len(self.params.suffix)
