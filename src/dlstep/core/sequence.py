"""The state of one request with its counts and storage, and the interface of the strategy that decodes it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import ClassVar, Literal

from rpds import HashTrieMap, List

from .block import Block, Extra, Grid, Replacement
from .constraint import RequestConstraint, TokenMask
from .errors import Refusal
from .frozen import built_fast
from .options import Options
from .plan import PLAIN, SampleSpec, Span, SpanSamples
from .request import Request
from .spec import Ids, Pages, Positions, Probabilities, Spec

FinishReason = Literal["stop", "length", "nfe_limit", "repetition", "abort", "rejected", "error"]
"""All ways in which an answer ends.

- `stop`, `length`, `repetition`: a finish rule of `core/commit.py` holds for the settled tokens; `stop` also if the strategy
  ends the answer before `limit`.
- `nfe_limit`: `SequenceState.steps`, the passes that sampled the request, has reached `max_nfe`.
- `abort`: `abort` was called (`Decode`, `Session`, `serve/engine_loop.py`): the client disconnected, a stream was closed, or
  a time limit of the request passed. The server also answers with `abort` if the request was still in its queue.
- `rejected`: `checked` in `core/lifecycle.py` found that the request can never run; no forward pass was made.
- `error`, with the cause in `FinishInfo.error`: the strategy or rule raises or returns an invalid value, the logits of a
  row are not finite, a processor raises (`after_samples` in `core/commit.py`), or the server fails the request after its
  forward pass has failed twice, its engine has died or `engine_timeout` has passed (`serve/router/router.py`).

If a driver raises, no request ends and the state is unchanged. An `LLM` then raises in all pending calls; a server retries.
"""
NO_PAGES: "List[int]" = List([])
Best = tuple[tuple[int, float], ...]  # the most probable ids of a position and their probabilities


@dataclass(frozen=True, slots=True)
class Storage:
    """Pages and carry slot of a sequence on the device."""

    stored: int = 0
    """End of the positions `[0, stored)` whose final keys and values are in pages."""
    table: "List[int]" = NO_PAGES
    """The pages, newest first so that the list grows without a copy."""
    published: int = 0
    """How many of the first pages have a prefix key."""
    prefix_key: bytes = b""
    """Prefix key of the last of these pages."""
    slot: int | None = None
    """Where the device keeps carried state between forward passes; None if there is none."""


@dataclass(frozen=True, slots=True)
class StopState:
    """Settled tokens that finish rules still need; kept only if the request sets such a rule."""

    run: int = 0
    """Number of equal tokens at the end."""
    tail: bytes = b""
    """The last bytes, which may begin a stop string."""
    state: int = 0
    """State of the constraint's automaton."""


@dataclass(frozen=True, slots=True)
class FinishInfo:
    """How an answer ended."""

    reason: FinishReason
    """Why it ended."""
    end: int
    """Position before which it ended."""
    error: str = ""
    """Message that explains a failure; else empty."""


@dataclass(frozen=True, slots=True)
class TokenChange:
    """A change that a forward pass made at a position of the answer."""

    step: int
    """Number of the pass, from 0, among those that sampled the request; a pass that preemption repeated counts once."""
    offset: int
    """Offset in the answer before the pass."""
    token_id: int | None
    """The new token, or the sampled one that the strategy replaced by masks; None: the position is masked again, or removed."""
    log_probability: float | None = None
    """Log-probability of the token in the distribution that it was drawn from; None if the pass did not sample the token."""
    plain_log_probability: float | None = None
    """Its log-probability in the plain softmax of the network's logits: all ids, temperature 1, no processors or filters."""
    entropy: float | None = None
    """Entropy of the plain softmax in nats."""
    masks: int | None = None
    """Number of masks that took the place of the position (dreamon); None if it stayed."""


@dataclass(frozen=True, slots=True)
class PassRecord:
    """A forward pass that sampled a request, for its step map."""

    progress: "Progress"
    """The progress before the pass."""
    changes: tuple[TokenChange, ...]
    """What the pass changed, by offset."""


NOTHING_STORED = Storage()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedRequest(Request):
    """A request with the values that `checked` derives from the request, the strategy and the engine's limits."""

    limit: int
    """First position past the answer; if the strategy changes the length of the answer, past the longest one."""
    stop_ids: Ids
    """Ids that end the answer, ascending."""
    grid: Grid
    """Groups of its final positions."""
    strategy: "Strategy"
    """The state's strategy, or a copy with the request's options."""
    constraint: RequestConstraint | None = None
    """Tokens that `automaton` allows at each position of the answer; None without an automaton."""


@built_fast
@dataclass(frozen=True, slots=True)
class Progress:
    """How far a strategy has decoded a sequence. Its hooks `init`, `commit` and `forget` return this value.

    A strategy changes nothing else of a sequence; the core keeps the other fields of `SequenceState`.
    """

    window: tuple[Block, ...]
    """Unfinished blocks, and finished ones that wait to be stored, in order of position. If empty, the answer ends."""
    final: int
    """The tokens of positions `[0, final)`, and all tokens that these positions attend to, can no longer change."""
    settled: int
    """Tokens of positions `[0, settled)` can no longer change; at least `final`."""
    past: "List[Block]"
    """Finished blocks, newest first. Positions before the first block hold only the prompt."""
    extra: Extra | None = None
    """State that the strategy keeps for the sequence."""
    replaced: tuple[Replacement, ...] = ()
    """The positions that the last sampling pass replaced, ascending, none of them settled before."""


@built_fast
@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceState:
    """The state of one request."""

    request: AddedRequest
    """The request, with the values derived from it."""
    progress: Progress
    """What the strategy returned last."""
    storage: Storage = NOTHING_STORED
    """Pages and carry slot."""
    steps: int = 0
    """Number of forward passes that sampled a position of the request."""
    nfe: int = 0
    """Number of forward passes with a span of the request."""
    stop_state: StopState = StopState()
    """State of the finish rules."""
    finish_info: FinishInfo | None = None
    """How the answer ended; None while it is unfinished."""
    best: "HashTrieMap[int, Best]" = HashTrieMap()
    """By position, the most probable ids of the pass that set its token; only with `SamplingParams.top_logprobs`."""
    passes: "List[PassRecord]" = List([])
    """The passes that sampled the request, newest first; only with `SamplingParams.step_map`."""

    @property
    def pages(self) -> Pages:
        """The pages of the sequence, in order of position. Takes time linear in their number."""
        return tuple(self.storage.table)[::-1]

    @property
    def finish(self) -> FinishReason | None:
        """Why the answer ended; None while it is unfinished."""
        return self.finish_info.reason if self.finish_info else None

    @property
    def error(self) -> str:
        """The error message; empty if there is none."""
        return self.finish_info.error if self.finish_info else ""

    @property
    def answer(self) -> Ids:
        """The tokens emitted so far, which can no longer change; at the end, the whole answer."""
        end = self.finish_info.end if self.finish_info else max(self.progress.settled, self.request.start)
        return self.tokens(self.request.start, end)

    @property
    def probabilities(self) -> Probabilities:
        """The probability of each token of `answer` when it was unmasked."""
        start = self.request.start
        return self.probabilities_of(start, start + len(self.answer))

    def probabilities_of(self, start: int, end: int) -> Probabilities:
        """Return the probabilities of positions `[start, end)`. Linear in those from `start` on.

        Args:
            start: First position.
            end: First position after the last one.
        """
        if end <= start:
            return ()
        blocks = self._blocks(start, end)
        return tuple(p for block in blocks for p in block.probabilities)[start - blocks[0].start : end - blocks[0].start]

    def best_of(self, start: int, end: int) -> tuple[Best, ...]:
        """Return the most probable ids of each of the positions `[start, end)`; () if they were not requested.

        For a given token, which no forward pass predicted, only the token itself.

        Args:
            start: First position.
            end: First position after the last one.
        """
        if not self.request.params.top_logprobs:
            return ()
        cells = enumerate(self.cells(start, end), start)
        return tuple([self.best.get(position) or (cell,) for position, cell in cells])

    def cells(self, start: int, end: int) -> Best:
        """Return token and probability of each of the positions `[start, end)`.

        Args:
            start: First position.
            end: First position after the last one.
        """
        return tuple(zip(self.tokens(start, end), self.probabilities_of(start, end), strict=True))

    def _blocks(self, start: int, end: int) -> list[Block]:
        """Return the blocks that overlap `[start, end)`, oldest first. Linear in later blocks."""
        newest_first = takewhile(lambda block: block.end > start, chain(reversed(self.progress.window), self.progress.past))
        return [block for block in newest_first if block.start < end][::-1]

    def tokens(self, start: int, end: int) -> Ids:
        """Return the tokens of positions `[start, end)`. Linear in those from `start` on.

        Args:
            start: First position.
            end: First position after the last one.
        """
        window = self.progress.window
        if window and window[0].start <= start <= end <= window[0].end:  # the common case: 0.3 us instead of 2.2
            return window[0].tokens[start - window[0].start : end - window[0].start]
        prompt = self.request.prompt
        if end <= len(prompt) or start >= end:
            return prompt[start:end]
        blocks = self._blocks(start, end)
        first = blocks[0].start
        # Blocks repeat the prompt tokens inside them; earlier positions hold only the prompt.
        head = prompt[start:first] if start < first else ()
        body = tuple(chain.from_iterable([block.tokens for block in blocks]))
        return head + body[max(start - first, 0) : end - first]

    def answer_cells(self, start: int = 0) -> Iterator[tuple[int, int, float, bool]]:
        """Yield (position, token, probability, unmasked) for each position of the answer in a block.

        Args:
            start: First position.
        """
        first, limit = max(start, self.request.start), self.request.limit
        for block in self._blocks(first, limit):
            masked = {*block.masked}
            for position, cell in enumerate(zip(block.tokens, block.probabilities, strict=True), block.start):
                if first <= position < limit:
                    yield position, *cell, position not in masked

    @property
    def unmasked_tokens(self) -> dict[int, int]:
        """The token of each unmasked position of the answer, ascending."""
        return {position: token for position, token, _, unmasked in self.answer_cells() if unmasked}

    def sampled_cells(self, start: int = 0) -> dict[int, tuple[int, float]]:
        """Return token and probability of each unmasked position of the answer that is not pinned.

        Args:
            start: First position.
        """
        pinned = {self.request.start + offset for offset, _ in self.request.params.pinned}
        return {
            position: (token, probability)
            for position, token, probability, unmasked in self.answer_cells(start)
            if unmasked and position not in pinned
        }

    def after_forward(self, storage: Storage, steps: int) -> "SequenceState":
        """Return the sequence after a forward pass.

        Args:
            storage: Pages and carry slot after the pass.
            steps: 1 if the pass sampled a position of the sequence, else 0.
        """
        return replace(self, storage=storage, steps=self.steps + steps, nfe=self.nfe + 1)


@dataclass(frozen=True, slots=True)
class Strategy(Options, ABC):
    """Base of decoding strategies. Subclass as a final frozen dataclass, whose fields are options.

    All methods are pure, and read no options but the fields of the strategy: for a request with options, the core uses a
    copy of the strategy with these options.

    The core handles batching, pages, admission, preemption, limits and finish rules. It
    feeds unstored final positions with the window if that changes no result, else alone, and cuts
    `max_tokens` to the room in the model's length: the answer ends at prompt length + `max_tokens`.
    """

    OWN_PARAMS: ClassVar[tuple[str, ...]] = ()
    """Names of sampling parameters that the strategy sets itself. `refusal` refuses them; the server ignores them,
    because many clients always send them."""
    holds_pins: ClassVar[bool] = False
    """Whether requests may pin tokens; blocks open with them, and full blocks are skipped."""
    takes_canvas: ClassVar[bool] = False
    """Whether requests may set an initial canvas."""
    takes_suffix: ClassVar[bool] = False
    """Whether requests may have a suffix, which spans feed after the window."""
    carries: ClassVar[bool] = False
    """Whether the network carries state from one forward pass of a sequence to its next."""
    takes_constraints: ClassVar[bool] = False
    """Whether requests may have a constraint: the core masks the samples, and `commit` filters its decisions."""

    @abstractmethod
    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress of a new sequence, with its first window and `final`.

        Args:
            sequence: The sequence, without blocks.
            spec: Facts of the model.
        """

    @abstractmethod
    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return the span of the next sampling pass. The span starts at `final` or later.

        Args:
            sequence: An unfinished sequence.
            spec: Facts of the model.
        """

    @abstractmethod
    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Return the progress after a forward pass that sampled the sequence; other passes do not call this.

        Args:
            sequence: The sequence, which already counts the pass.
            span: The span that ran.
            samples: Samples of the span; entry i belongs to position `span.wanted.sampled[i]`.
            spec: Facts of the model.
        """

    @abstractmethod
    def grid(self, request: Request) -> Grid:
        """Return the groups under which the final positions of a request are stored.

        Args:
            request: The request.
        """

    @abstractmethod
    def rows_at_once(self, request: Request) -> int:
        """Return the largest number of positions of a request that must be fed in one forward pass.

        Args:
            request: The request.
        """

    @property
    def certain_from(self) -> float | None:
        """The lowest probability at which a pass unmasks a sampled position, with the sampled token.

        If none reaches it, the pass unmasks the request's most probable one, the first of equals. With this value, a device can
        unmask and start the next pass before the host has the samples (`plan_ahead`). None, the default, if anything else
        decides.
        """
        return None

    @abstractmethod
    def measure(self, sequence: SequenceState) -> int:
        """Return an upper bound on the remaining sampling passes; each pass must lower it.

        Once `steps` exceeds the number of positions of the answer, the core checks this after every
        pass.

        Args:
            sequence: An unfinished sequence.
        """

    def forget(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress from which the sequence can continue on a device that has lost its cache.

        Its `extra` must be valid without a cache.

        Args:
            sequence: An unfinished sequence, without pages; `steps` no longer counts the `lost_passes`.
            spec: Facts of the model.
        """
        return sequence.progress

    def lost_passes(self, sequence: SequenceState) -> int:
        """Return how many of the last sampling passes have to be repeated if the device loses its cache.

        The core subtracts the number from `steps` and then calls `forget`. The repeated passes therefore use the same
        draw numbers, and each counts only once towards `max_nfe`. The number is not a field of `Progress`, because only the
        core may change `steps`.

        Args:
            sequence: An unfinished sequence.
        """
        return 0

    def fed_end(self, request: Request) -> int:
        """Return the first position that no forward pass of a request feeds.

        Args:
            request: The request.
        """
        return self.grid(request).cover(request.start + request.params.max_tokens)

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why the strategy cannot decode a request, or any request of the model; None if it can.

        Args:
            spec: Facts of the model.
            request: The request. `probe(spec)` is one that every strategy for the model accepts.
        """
        return None

    @property
    def sample_spec(self) -> SampleSpec:
        """Statistics that `commit` needs besides token and probability, and the tie-breaking."""
        return PLAIN

    @property
    def autoregressive(self) -> "Strategy | None":
        """A strategy of one token per pass that gives equal answers, in no fewer passes; None if there is none."""
        return None

    @property
    def full_passes(self) -> bool:
        """Whether each sampling pass feeds all positions of a request, without cached keys and values, as guidance requires."""
        return False

    @property
    def exact(self) -> bool:
        """Whether preemption changes no answer. False if passes read outdated KV entries."""
        return True


def token_masks(sequence: SequenceState, sampled: Positions) -> tuple[TokenMask, ...]:
    """Return the mask of each position in `sampled`; () without a constraint."""
    constraint = sequence.request.constraint
    if constraint is None:
        return ()
    state, since = sequence.stop_state.state, sequence.progress.settled
    if sampled and sampled[0] < since:  # a rule may also sample settled positions: read from the first of them
        since = sampled[0]
        state = constraint.run(0, sequence.tokens(constraint.start, since))
    return constraint.window_masks(state, since, sequence.progress.window, sampled)
