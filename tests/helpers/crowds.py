"""Crowds of requests that trickle in, of which some are aborted and some give way: what ranks answer beside one process."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dlstep import SamplingParams, tiny
from dlstep.core import Event, Request, Samples, Span, SpanSamples
from dlstep.distributed.rank_zero import End, RankZeroDriver, follow_rank_zero
from dlstep.distributed.ranks import Ranks
from dlstep.distributed.worker_group import WorkerGroup
from dlstep.engine.config import EngineConfig
from dlstep.engine.decode import Decode
from dlstep.engine.loader import LoadedEngine, build_engine
from dlstep.engine.strategy_choice import embedded_models_for
from dlstep.strategies import own

SAME = 1e-5  # probabilities that differ by less may decide otherwise: ranks add up in another order
GROWTH = 10.0  # times: how much farther apart answers may be than probabilities that were fed back
SHORT = (6, 12, 24)  # tokens of an answer
Asked = tuple[Span, SpanSamples]
# Strategies that have an embedded model.
EMBEDDED = tuple(name for name in sorted(own()) if embedded_models_for(EngineConfig(decoding_strategy=name)))


@dataclass(frozen=True, slots=True)
class Case:
    """A strategy on its embedded model, or on a random network in a folder; `options` are those of an LLM."""

    strategy: str | None
    folder: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages."""
        return f"embedded {self.strategy}" if self.folder is None else f"random {self.folder.rpartition('/')[2]}"

    @property
    def exact(self) -> bool:
        """Whether nothing may differ: no probability is fed back, and no margin is small by chance."""
        return self.folder is None

    @property
    def config(self) -> EngineConfig:
        """Fewer pages than the requests would like."""
        room = {"num_pages": 40, "max_model_len": 96} if self.folder is None else {"num_pages": 60, "max_model_len": 128}
        sizes: dict[str, Any] = room | {"max_num_reqs": 8, "page_size": 4, "num_threads": 1}
        return EngineConfig(model=self.folder, decoding_strategy=self.strategy, **(sizes | self.options))


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of all requests, cache digests after all steps, the number of preemptions, and all rows."""

    tokens: list[tuple[int, ...]]
    finishes: list[str]
    cache_digests: list[int]
    preempted: int
    asked: list[list[Asked]]


def crowd(engine: LoadedEngine, count: int) -> Answers:
    """Some requests come with each step; every now and then the youngest is aborted."""
    assert engine.tokenizer is not None
    prompts = [tuple(engine.tokenizer.encode(problem.prompt))[:60] for problem in tiny.problems(count, seed=3)]
    asked: list[list[Asked]] = [[] for _ in prompts]

    def keep(event: Event) -> None:
        if isinstance(event, Samples):
            for span, rows in zip(event.plan.spans, event.spans, strict=True):
                asked[span.who.seq_id].append((span, rows))

    decode = Decode(engine.first, engine.driver, record=keep)
    masked = decode.state.config.spec.mask_id is not None
    sent, preempted, cache_digests = 0, 0, []
    gone: dict[int, tuple[tuple[int, ...], str]] = {}
    while sent < count or not decode.state.done:
        for _ in range(min(1 + sent % 5, count - sent)):
            hot = masked and sent % 3 == 0
            filters: dict[str, Any] = {"top_k": 20} if hot and sent % 6 == 0 else {}
            params = SamplingParams(max_tokens=SHORT[sent % 3], temperature=0.6 if hot else 0.0, **filters)
            decode.add(Request(sent, prompts[sent], params, index=sent))
            sent += 1
        if decode.state.step % 7 == 3 and decode.state.live:
            decode.abort(max(decode.state.live))
        before = {each.request.seq_id for each in decode.state.running}
        for update in decode.step():
            if update.finish_info is not None:
                gone[update.id] = update.sequence.answer, update.finish_info.reason
        preempted += len(before & {each.request.seq_id for each in decode.state.waiting})
        cache_digests.append(decode.state.cache_digest)
    told = [gone[number] for number in range(count)]
    return Answers([answer for answer, _ in told], [reason for _, reason in told], cache_digests, preempted, asked)


class Lent(WorkerGroup):
    """A group that other engines use after this one."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(ranks)

    def end(self) -> None:
        """Leave it to them."""


def crowds(ranks: Ranks, cases: list[Case], count: int) -> list[Answers]:
    """The answers to a crowd of each case; ranks other than the first follow, and have none."""
    import warnings

    warnings.simplefilter("ignore")
    found: list[Answers] = []
    for case in cases:
        group = Lent(ranks)
        engine = build_engine(case.config, lambda _, group=group: group)
        if ranks.rank:
            driver: Any = engine.driver
            follow_rank_zero(driver, ranks)
            continue
        found.append(crowd(engine, count))
        if ranks.several:
            group.lost = "the crowd is answered"
            assert isinstance(engine.driver, RankZeroDriver)
            engine.driver._channel.send(End())
    return found


def flips(name: str, whole: Answers, found: Answers, *, exact: bool) -> list[str]:
    """Requests that went another way, and how far apart probabilities were where they did; none if `exact`.

    Raises AssertionError for any that is not explained by sums in another order.
    """
    if exact:
        assert found.tokens == whole.tokens and found.finishes == whole.finishes, f"{name}: {_first(whole, found)}"
        return []
    told: list[str] = []
    for number, (one, other) in enumerate(zip(whole.asked, found.asked, strict=True)):
        if whole.tokens[number] == found.tokens[number]:
            continue
        apart = parted(one, other)
        if apart is None:
            assert told and "abort" in (whole.finishes[number], found.finishes[number]), (
                f"{name}: request {number} ended otherwise"
            )
            continue  # aborts count steps, which differ after a flip
        assert apart < SAME, f"{name}: request {number} parted where probabilities are {apart:.2g} apart"
        told.append(f"{name}: request {number} parted at a margin under {max(apart, 1e-9):.2g} beside what was fed back")
    return told


def parted(one: list[Asked], other: list[Asked]) -> float | None:
    """Return how far apart probabilities are before the first different token, except by feedback.

    None if one only ended before the other.

    A random network may double in every step what is fed back to it with another last digit.
    """
    most = 0.0
    for (span, rows), (its_span, its_rows) in zip(one, other, strict=False):
        if (span.rows.start, span.rows.tokens, span.wanted.sampled) != (
            its_span.rows.start,
            its_span.rows.tokens,
            its_span.wanted.sampled,
        ):
            return most
        fed = 0.0
        if span.rows.soft is not None and its_span.rows.soft is not None:
            fed = _apart(span.rows.soft.probabilities, its_span.rows.soft.probabilities)
        most = max(most, _apart(rows.probabilities, its_rows.probabilities) - GROWTH * fed)
        if rows.tokens != its_rows.tokens:
            return most
    return None


def _apart(some: Sequence[float], others: Sequence[float]) -> float:
    return max((abs(a - b) for a, b in zip(some, others, strict=True)), default=0.0)


def _first(whole: Answers, found: Answers) -> str:
    for number, pair in enumerate(zip(whole.tokens, found.tokens, strict=True)):
        if pair[0] != pair[1]:
            return f"request {number}: {pair[0]} by one process, {pair[1]} by ranks"
    return "finish reasons differ"
