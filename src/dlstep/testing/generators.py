"""Hypothesis generators of engines, strategies, requests and arrivals, with small sizes.

Generators without parameters are created once, because Hypothesis validates each on first use.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from math import ceil, floor, isfinite
from operator import itemgetter
from random import Random
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hypothesis import reject, strategies as st

from .. import rules
from ..core import Config, Json, Options, Request, Rule, SamplingParams, Spec, Strategy, options_of
from ..core.automaton import Automaton, bitmap_of, label_words, packed_tables
from ..core.checks import limits_of, values_of
from ..core.lifecycle import least_pages, probe, sized
from ..core.spec import AcceptRule
from ..text.dfa import explored
from .edges import PlainEdges

VOCABULARY = 50
MASK, EOS = VOCABULARY - 1, VOCABULARY - 2
MAX_MODEL_LEN = 32
PIECES = tuple(b"%c" % b"abcd"[token % 4] for token in range(VOCABULARY))  # few letters, so that stop strings occur

VALUES: dict[str, Sequence[Any]] = {  # for each option, the values to draw from
    "block_size": (1, 2, 3, 4, 8),
    "buffer_size": range(1, 5),
    "canvas_length": (2, 4, 8),
    "max_denoising_steps": range(1, 6),
    "expand_token_id": (None, 0, 1, 2, 3),
    "initial_masks": range(1, 9),
    "expand_budget": (None, None, 0, 1, 3),
    "tokens_per_pass": (1, 1, 2, 3),
    "max_post_edit_steps": range(4),
    "steps_per_block": (None, None, *range(1, 5)),
    "least_taken": range(1, 5),
    "credit_weight": (0.0, 0.7, 4.0),
    "credit_power": (0.0, 0.2, 1.0),
    "credit_decay": (0.0, 0.8, 1.0),
    # Only some variants of a rule accept each of these options.
    "remask_forwards": (None, None, None, 0, 3),
    "remask_count": (None, None, None, 2, 9),
    "eta": (None, None, None, 0.3, 1.0),
    "t_on": (None, None, None, 0.9),
    "t_off": (None, None, None, 0.3),
    "alpha_on": (None, None, None, 0.3),
    "token_merge_top_k": range(1, 4),
    "token_merge_weight": (0.0, 0.5, 1.0),
    "penalty_lambda": (0.0, 0.0, 0.5),
    "entropy_threshold": (0.0, 0.3, 0.5, 1.5, 3.0),
    "falling": (0.0, 0.3, 1.0),
    "order_temperature": (None, None, 0.1, 1.0),
    "factor": (0.0, 0.5, 1.0, 5.0),
    "radius": range(5),
    "base": range(2, 5),
    "skip": range(4),
    "stride": (None, None, *range(1, 5)),
    "entropy_bound": (0.1, 0.5, 1.0, 3.0),
    "t_min": (0.0, 0.4),
    "t_max": (0.5, 0.8),
    "stability_threshold": range(3),
    "confidence_threshold": (0.1, 0.5, 0.9),
    "window": range(1, 9),
    "max_window": (None, None, *range(1, 9)),
    "refresh_count": range(1, 7),
    "window_delay": range(4),
    "part_size": range(1, 9),
    "segment_size": (None, None, 1, 3, 8),
    **dict.fromkeys(("early_gap", "middle_gap", "late_gap"), (None, 0.0, 0.5, 1.0, 2.0, 3.0)),
}
SMALL: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.sampled_from(values) for name, values in VALUES.items()},
    "delimiters": st.sets(st.integers(0, EOS)).map(lambda ids: tuple(sorted(ids))),
    "region": st.just(()) | st.tuples(st.integers(0, 8), st.integers(1, 8)),
}
Value = TypeVar("Value", bound=Options)
Event = TypeVar("Event")
Kind = type[Strategy] | Strategy  # a class, or a value that stands for its class and its rule's class
THRESHOLDS = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0])
# Options that requests set, with their minimum.
OWN_OPTIONS = {
    "accept_threshold": 0.0,
    "add_block_threshold": 0.0,
    "semi_complete_threshold": 0.1,  # above 0
    "token_stability_threshold": 0.0,
    "edit_threshold": 0.0,
    "remask_threshold": 0.0,
}
IDS = st.integers(0, EOS)
MANY_STOPS = tuple(range(0, EOS, 6))  # so many that one pass often settles two; the first in the text counts
PINNED = st.integers(0, 9) | IDS
LONGEST = st.binary(min_size=MAX_MODEL_LEN, max_size=MAX_MODEL_LEN).map(lambda given: tuple(byte % MASK for byte in given))
PROMPTS = st.lists(IDS, min_size=1, max_size=12).map(tuple)
TAILS = st.lists(IDS, max_size=4).map(tuple)
LONG = st.builds(SamplingParams, max_tokens=st.integers(4, 20), ignore_eos=st.just(True), seed=st.just(0))
STEPS = st.integers(0, 12)
SALTS = st.sampled_from([b"", b"", b"other"])


def specs(strategy: Strategy) -> st.SearchStrategy[Spec]:
    """Generate specs that a strategy can decode: with and without masks, all heads and rules."""
    return st.sampled_from(_decodable(strategy))


@st.composite
def engines(draw: st.DrawFn, kind: Kind) -> tuple[Strategy, Spec]:
    """Generate a strategy and a spec that it can decode."""
    strategy = draw(hyperparameters(kind))
    return strategy, draw(specs(strategy))


def _decodable(strategy: Strategy) -> list[Spec]:
    heads: tuple[Literal[0, 1], ...] = (0, 1)
    rules: tuple[AcceptRule, ...] = ("A", "B")
    masks = (MASK, None)
    models = [Spec(mask, (EOS,), VOCABULARY, head, rule, PIECES) for mask in masks for head in heads for rule in rules]
    return [spec for spec in models if not strategy.refusal(spec, probe(spec))]


@lru_cache
def _fields(cls: type[Options], held: frozenset[str]) -> dict[str, st.SearchStrategy[Any]]:
    """Return a generator for each field of a class except those that hold rules."""
    hints = get_type_hints(cls, include_extras=True)
    drawn: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields(cls):
        if field.name in SMALL:
            drawn[field.name] = SMALL[field.name]
        elif field.name not in held:
            low = OWN_OPTIONS.get(field.name, 0.0)
            own = _at_least(low) if field.name.endswith("_threshold") else _typed(hints[field.name], field.default)
            # 0.0 turns many options off: draw it no more often than other values.
            drawn[field.name] = own if field.default in (MISSING, 0.0) else st.just(field.default) | own
    return drawn


def _typed(hint: Any, default: object) -> st.SearchStrategy[Any]:
    """Generate values of a type; for unbounded numbers, a small range around the default."""
    if (found := _open(hint, default)) is None:
        return st.from_type(hint)
    kind, low, high = found
    numbers = st.integers(low, high) if kind is int else st.floats(low, high)
    return st.none() | numbers if type(None) in get_args(hint) else numbers


def _open(hint: Any, default: object) -> tuple[type[int] | type[float], int, int] | None:
    """Return the number type and a small range if a numeric type lacks a bound; else None.

    A loop over an unbounded number could take any time; users rarely need one like 10**18.
    """
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = {get_args(part)[0] if get_origin(part) is Annotated else part for part in parts} - {type(None)}
    if kinds not in ({int}, {float}):
        return None
    (kind,) = kinds
    number = default if isinstance(default, int | float) and isfinite(default) else 0
    if len(limits := limits_of(hint)) > 1:
        return None
    lows = [ceil(bound) + (side == "more than") for side, bound in limits if side in ("at least", "more than")]
    highs = [floor(bound) - (side == "less than") for side, bound in limits if side in ("at most", "less than")]
    low = lows[0] if lows else 0
    high = highs[0] if highs else max(low + 8, 2 * ceil(number))
    return kind, low if lows else min(high - 8 if highs else 0, floor(number)), high


def open_fields(value: Options) -> Iterator[tuple[str, type[int] | type[float], int, int]]:
    """Yield name, type and drawn range of each field without upper or lower bound."""
    hints = get_type_hints(type(value), include_extras=True)
    for field in fields(value):
        if field.name not in SMALL and not field.name.endswith("_threshold"):
            found = _open(hints[field.name], field.default)
            if found is not None:
                yield field.name, *found


@st.composite
def hyperparameters(draw: st.DrawFn, like: type[Value] | Value) -> Value:
    """Generate strategies or rules with small sizes; other options as type and bounds allow.

    All have the class of `like`, or `like` itself if it is a class, and strategies the class of its rule.
    A rule inside a rule is of any class that the outer rule accepts.
    """
    example = like() if isinstance(like, type) else like
    plainly = values_of(example)
    held = {name: value for name, value in plainly.items() if isinstance(value, Options)}
    drawn = _fields(type(example), frozenset(held))
    kept = {name: value for name, value in plainly.items() if name not in SMALL and name not in held}
    for _ in range(8):
        parts = (
            held
            if isinstance(example, Strategy)
            else {name: draw(st.sampled_from(_held(type(example), name))) for name in held}
        )
        values = {name: draw(hyperparameters(parts[name]) if name in held else drawn[name]) for name in plainly}
        for chosen in (values, values | parts, values | kept | parts):
            if (value := _made(type(example), chosen)) is not None:
                return value
    return reject()


def _made(cls: type[Value], options: Json) -> Value | None:
    """Return a value with these options; None if they contradict one another, or its rule needs another strategy."""
    try:
        value = cls(**options)
    except ValueError:
        return None
    return None if isinstance(value, Strategy) and not _decodable(value) else value


@lru_cache
def _held(cls: type[Options], name: str, **others: Any) -> tuple[Rule, ...]:
    """Return default values of the rules of this package that field `name` of a class accepts, with other options."""
    known = [rules.load(each)() for each in rules.own()]
    return tuple(rule for rule in known if _made(cls, others | {name: rule}) is not None)


def _at_least(low: float) -> st.SearchStrategy[float]:
    return THRESHOLDS.map(lambda value: max(value, low))


@st.composite
def params(draw: st.DrawFn, strategy: Strategy, *, often: bool = False) -> SamplingParams:
    """Generate all kinds of limits and stops, most of them unset. Pin tokens rarely, or `often`."""
    plain = draw(_unpinned(frozenset(options_of(strategy).keys() & OWN_OPTIONS)))
    if strategy.takes_suffix:
        plain = replace(plain, suffix=draw(TAILS))
    if draw(st.integers(0, 1 if often else 7)):
        return plain
    pinned, canvas = draw(pins(plain.max_tokens)), ()
    if strategy.takes_canvas and draw(st.booleans()):
        lengths = [plain.max_tokens, *(option for name, option in options_of(strategy).items() if name == "canvas_length")]
        length = draw(st.sampled_from([*lengths, 3]))  # 3 is often an invalid length
        canvas = draw(st.lists(IDS, min_size=length, max_size=length).map(tuple))
    return replace(plain, pinned=pinned, canvas=canvas)


@st.composite
def pins(draw: st.DrawFn, max_tokens: int) -> dict[int, int]:
    """Generate pinned tokens: few, long runs or the whole answer; occasionally an invalid one."""
    offsets = draw(st.sets(st.integers(0, max_tokens - 1), max_size=6))
    if draw(st.booleans()):
        begin = draw(st.integers(0, max_tokens - 1))
        offsets |= set(range(begin, min(max_tokens, begin + draw(st.sampled_from([2, 4, 8, 20])))))
    found = {offset: draw(PINNED) for offset in sorted(offsets)}
    if found and draw(st.integers(0, 15)) == 0:
        found[min(found)] = draw(st.sampled_from([MASK, VOCABULARY]))
    return found


@lru_cache
def _unpinned(known: frozenset[str]) -> st.SearchStrategy[SamplingParams]:
    own = {name: _at_least(OWN_OPTIONS[name]) for name in sorted(known)}
    return st.builds(
        SamplingParams,
        max_tokens=st.integers(1, 20),
        temperature=st.sampled_from([0.0, 0.0, 1.0]),
        seed=st.integers(0, 3),
        ignore_eos=st.booleans(),
        stop_token_ids=st.just(()) | st.lists(IDS, max_size=3).map(tuple) | st.just(MANY_STOPS),
        stop=st.sampled_from([(), (), (), ("abc",), ("bb", "dad"), ("cccc",)]),
        max_nfe=st.none() | st.integers(1, 12),
        max_repetition_run=st.sampled_from([None, None, 2, 3]),
        step_map=st.sampled_from([False, False, True]),
        strategy_options=st.just({}) | st.fixed_dictionaries({}, optional=own),
    )


@st.composite
def batches(draw: st.DrawFn, strategy: Strategy, most: int = 5, *, pinned: bool = False) -> tuple[Request, ...]:
    """Generate requests whose prompts often share a prefix; some must be rejected.

    Tokens are pinned rarely, or often if `pinned`.
    """
    base = draw(LONGEST)
    requests: list[Request] = []
    for number in range(draw(st.integers(1, most))):
        cut = draw(st.integers(0, 20))
        prompt = base[:cut] + draw(TAILS) or base[:1]
        if draw(st.integers(0, 11)) == 0:
            prompt = draw(st.sampled_from([(*prompt, MASK), (MASK, *prompt), base]))
        request = Request(number, prompt, draw(params(strategy, often=pinned)), salt=draw(SALTS))
        requests.append(draw(_constrained(request)) if strategy.takes_constraints else request)
    return tuple(requests)


def _constrained(request: Request) -> st.SearchStrategy[Request]:
    """Generate `request` with and without a constraint. Few of its constraints have no answer."""
    return st.just(request) | st.sampled_from(random_automata()).map(lambda automaton: under(request, automaton))


def under(request: Request, automaton: Automaton) -> Request:
    """Return `request` with a constraint, and without limits that end its answer outside the language."""
    params = replace(request.params, ignore_eos=False, max_nfe=None, max_repetition_run=None)
    return replace(request, params=params, automaton=automaton)


@lru_cache
def random_automata() -> tuple[Automaton, ...]:
    """Return automata over the letters of PIECES: strict and loose ones, finite and infinite languages."""
    random, made = Random(0), list[Automaton]()
    class_of = [1 + token % 4 if token not in (MASK, EOS) else 0 for token in range(VOCABULARY)]
    while len(made) < 24:
        states = range(random.randint(1, 6))
        share = random.choice([0.3, 0.6, 1.0])
        moves = [[(letter, letter, random.choice(states)) for letter in range(1, 5) if random.random() < share] for _ in states]
        accepting = [state for state in states if random.random() < 0.4]
        live = explored(0, moves.__getitem__, accepting.__contains__)
        rows = [{letter: to for low, high, to in row for letter in range(low, high + 1)} for row in live.rows]
        if rows:
            made.append(table_automaton(f"random {len(made)}", class_of, [*live.accepting], rows))
    return tuple(made)


def table_automaton(
    source: str, class_of: Sequence[int], accepting: Sequence[int], rows: Sequence[Mapping[int, int]]
) -> Automaton:
    """Return the automaton with these classes of ids and these next states by state and class."""
    sizes, labels = [0] * (max(class_of, default=0) + 1), dict[int, int]()
    for letter in class_of:
        sizes[letter] += 1
    edges: list[tuple[int, int, int]] = []  # source, target, label
    for state, row in enumerate(rows):
        for target in sorted({*row.values()}):
            classes = bitmap_of([letter for letter, to in row.items() if to == target])
            edges.append((state, target, labels.setdefault(classes, len(labels))))
    packed = b"".join([classes.to_bytes(4 * label_words(len(sizes)), "little") for classes in labels])
    arrays: list[Iterable[int]] = []
    for key, count, others in ((0, len(rows), (1,)), (1, len(rows), (0,)), (2, len(labels), (0, 1))):
        edges.sort(key=itemgetter(key))
        arrays.append([bisect_left(edges, number, key=itemgetter(key)) for number in range(count + 1)])
        arrays += [[edge[other] for edge in edges] for other in others]
    first, last = ([array("i", each).tobytes() for each in part] for part in ((class_of, sizes, sorted(accepting)), arrays))
    return Automaton.of(source, packed_tables([*first, packed, *last]), PlainEdges)


def ample(spec: Spec) -> Config:
    """Return the configuration of an engine with ample resources and no prefix sharing."""
    return Config(spec, 4, 400, MAX_MODEL_LEN, 4000, 16, enable_prefix_caching=False)


@st.composite
def tight(draw: st.DrawFn, spec: Spec, strategy: Strategy, requests: tuple[Request, ...]) -> Config:
    """Generate configurations with few pages, rows and running requests, down to the minimum."""
    page_size = draw(st.sampled_from([1, 3, 4, 8]))
    pages_needed = least_pages(strategy, MAX_MODEL_LEN, page_size)
    # Occasionally a request's rows that are fed at once exceed the budget, so that it must be rejected.
    runnable = requests if draw(st.integers(0, 4)) else ()
    least = max(strategy.rows_at_once(sized(request, MAX_MODEL_LEN)) for request in (probe(spec), *runnable)) + spec.head_shift
    # The rows suffice for one request, but often not quite for two or three.
    rows = st.integers(least, 3 * least) | st.sampled_from([2 * least - 1, 3 * least - 1])
    return Config(
        spec,
        page_size,
        pages_needed + draw(st.integers(0, 2 * pages_needed) | st.just(0)),
        MAX_MODEL_LEN,
        draw(rows),
        draw(st.integers(1, 5)),
        enable_prefix_caching=draw(st.booleans()),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """An engine and its events.

    `requests[i]` arrives before step `arrive[i]`. For each pair (s, id), `aborts` ends a request
    before step s, and `late_aborts` ends it between `schedule` and `commit` of step s. `rebuilds`
    are the steps before which the device loses its contents, and each pair (s, options) of
    `forks` changes options of all requests before step s, if their blocks allow it; with `within`,
    before the first step from s on at which a block is unmasked in part.
    """

    config: Config
    strategy: Strategy
    requests: tuple[Request, ...]
    arrive: tuple[int, ...]
    aborts: tuple[tuple[int, int], ...] = ()
    late_aborts: tuple[tuple[int, int], ...] = ()
    rebuilds: tuple[int, ...] = ()
    forks: tuple[tuple[int, Json], ...] = ()
    within: bool = False

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the fields that differ from their default, one per line: Hypothesis calls this for a failing case."""
        printer.text("\n  ".join(["Case", *_changed_fields(self)]))

    def arriving(self, number: int) -> list[Request]:
        """Return the requests that arrive before step `number`."""
        return due(zip(self.arrive, self.requests, strict=True), number)


def _changed_fields(value: Any) -> Iterator[str]:
    """Yield `name=value` for each field of a dataclass that differs from its default."""
    for field in fields(value):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.repr and (own := getattr(value, field.name)) != default:
            yield f"{field.name}={_compact(own)}"


def _compact(value: Any) -> str:
    """Return the repr of a value, without fields that have their default."""
    if isinstance(value, tuple) and value is not PIECES:
        return f"({''.join(f'{_compact(each)}, ' for each in value).rstrip()})"
    if is_dataclass(value):
        return f"{type(value).__name__}({', '.join(_changed_fields(value))})"
    return "PIECES" if value is PIECES else repr(value)


def due(events: Iterable[tuple[int, Event]], number: int) -> list[Event]:
    """Return the events of step `number`, in order."""
    return [event for step, event in events if step == number]


@st.composite
def cases(
    draw: st.DrawFn, kind: Kind, *, aborts: bool = True, rebuilds: bool = True, pinned: bool = False, forks: bool = False
) -> Case:
    """Generate cases of a strategy with random arrivals, aborts, limits and device losses, and forks if requested."""
    strategy, spec = draw(engines(kind))
    within = forks and "rule" in options_of(strategy) and draw(st.booleans())
    requests = draw(batches(strategy, pinned=pinned))
    config = draw(tight(spec, strategy, requests))
    arrive = tuple(sorted(draw(st.lists(STEPS, min_size=len(requests), max_size=len(requests)))))
    some = st.lists(st.tuples(STEPS, st.integers(0, len(requests) - 1)), max_size=2).map(tuple)
    made = counting_rules(strategy) if within else st.just({}) | changes(strategy)
    return Case(
        config,
        strategy,
        requests,
        arrive,
        draw(some) if aborts else (),
        draw(some) if aborts else (),
        tuple(draw(st.lists(STEPS, max_size=2))) if rebuilds else (),
        draw(st.lists(st.tuples(STEPS, made), min_size=within, max_size=2).map(tuple)) if forks else (),
        within,
    )


def changes(strategy: Strategy) -> st.SearchStrategy[Json]:
    """Generate either options for requests of a strategy, except those that move blocks, or another rule."""
    kept, moving = hyperparameters(strategy) | hyperparameters(type(strategy)), ("block_size", "canvas_length")
    own = kept.map(lambda value: {name: option for name, option in options_of(value).items() if name not in moving})
    return own | counting_rules(strategy) if "rule" in options_of(strategy) else own


def counting_rules(strategy: Strategy) -> st.SearchStrategy[Json]:
    """Generate rules of a strategy; only those that count passes, if it accepts any.

    A fork gives them blocks that another rule has unmasked in part.
    """
    able = _held(type(strategy), "rule", **values_of(strategy))
    counting = [rule for rule in able if type(rule).measure is not Rule.measure]
    return st.sampled_from(counting or able).flatmap(hyperparameters).map(lambda rule: {"rule": rule})


@st.composite
def crowds(draw: st.DrawFn, kind: Kind) -> Case:
    """Generate cases of many requests on few pages and rows, so that most plans wait or preempt."""
    strategy, spec = draw(engines(kind))
    requests = tuple(Request(number, draw(PROMPTS), draw(LONG)) for number in range(draw(st.integers(4, 8))))
    config = replace(draw(tight(spec, strategy, requests)), max_num_reqs=draw(st.integers(3, 6)))
    return Case(config, strategy, requests, tuple(sorted(draw(st.integers(0, 3)) for _ in requests)))
