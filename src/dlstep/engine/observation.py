"""Observations: what the network computes in one forward pass, computed once more without changing the decode."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from dlstep_kernels import Drawn
from dlstep_kernels.head import logits_of
from dlstep_kernels.sampling import capped

from ..core import (
    EMPTY_CACHE,
    NO_SAMPLES,
    Ids,
    Plan,
    Positions,
    PositiveInt,
    Samples,
    Span,
    State,
    TableRow,
    Texts,
    Trace,
    commit,
    rebuild,
    schedule,
)
from ..core.checks import Checked, plain, short, whole_numbers
from ..driver import TorchDriver
from ..driver.lowering import Gathered, pack, unpack
from ..models.layers import stacked_experts
from ..models.networks import Batch, Memory, PagedNetwork
from ..models.shapes import head_of
from ..text.words import piece
from ..views.observations import Picture, heat_map
from .loader import LoadedEngine

Layers = Sequence[int] | Literal["all"]
Numbers = tuple[int, ...]  # of layers or heads


@dataclass(frozen=True, slots=True)
class Chosen(Checked):
    """The results to observe; the fields are the arguments of `Session.observe`."""

    best: PositiveInt = 5
    logits: bool = False
    hidden_states: Layers = ()
    lens: Layers = ()
    attentions: Layers = ()
    heads: Layers = "all"
    experts: Layers = ()

    def numbers(self, network: PagedNetwork) -> dict[str, Numbers]:
        """Return the numbers of the chosen layers and heads by field. Raises ValueError for one that does not exist."""
        shapes = network.shapes
        layers, states = range(len(shapes)), range(len(shapes) + 1)
        mixtures = sorted({layer for layer, module in _layers(network) if stacked_experts(module)})
        heads = range(min(shape.kv_heads * shape.group for shape in shapes))
        known = {"hidden_states": states, "lens": states, "attentions": layers, "heads": heads, "experts": mixtures}
        return {name: _numbers(name, getattr(self, name), numbers) for name, numbers in known.items()}


def _numbers(name: str, given: object, known: Sequence[int]) -> Numbers:
    """Return the chosen numbers. Raises ValueError for an unknown number."""
    if given == "all":
        return tuple(known)
    numbers = whole_numbers(given)
    if numbers is None or not set(numbers) <= set(known):
        there = f"{known[0]} to {known[-1]}" if known else "none"
        raise ValueError(f"{name}={short(given)} must be 'all' or a list of numbers; this network has {there}")
    return numbers


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The most probable tokens of `w` positions, under the distribution from which the pass sampled."""

    ids: Int64[Tensor, "w k"]
    """The `k` most probable ids of each position, the most probable first."""
    log_probabilities: Float32[Tensor, "w k"]
    """Natural logarithms of their probabilities; -inf for ids that cannot be sampled."""
    entropies: Float32[Tensor, " w"]
    """Entropies in nats."""

    def at(self, positions: slice) -> "Candidates":
        """Return the candidates of some of the positions."""
        return Candidates(self.ids[positions], self.log_probabilities[positions], self.entropies[positions])


@dataclass(frozen=True, slots=True, eq=False)
class ObservedSpan:
    """The observation of one request: `n` fed positions (rows) and `w` sampled positions, on the CPU.

    Its rows see positions below `c`, the length of `sources`. Results that were not requested are None or empty.
    """

    id: int
    """Id of the request."""
    start: int
    """Position of the first token of the answer."""
    positions: Sequence[int]
    """The position of each row."""
    tokens: Ids
    """The token that each row was fed."""
    sampled: Positions
    """The sampled positions, ascending."""
    rows_of_sampled: Positions
    """The row that predicts each sampled position."""
    candidates: Mapping[int, Candidates] = field(repr=False)
    """The most probable tokens of each sampled position, by index of hidden states: at the last index, those of the pass;
    at an index of `lens`, those that the final norm and the head compute from the hidden states there."""
    sources: Texts
    """Origin of the keys and values of each position below `c`: `stored` by an earlier pass, or computed in
    this pass from a `final` token or from the `window`."""
    logits: Float32[Tensor, "w vocab"] | None = field(repr=False)
    """Output of the head at each sampled position, before processors, penalties, masks, temperature and filters."""
    hidden_states: Mapping[int, Float32[Tensor, "n hidden"]] = field(repr=False)
    """By index: 0 is the embedding, i the output of i layers; the last one is after the final norm."""
    attentions: Mapping[int, Float32[Tensor, "heads n c"]] = field(repr=False)
    """By layer, the attention weights of the chosen heads. Column p is the weight of position p of prompt and answer, whose
    key has the origin `sources[p]`; the weight is 0 if the row does not see p. The weights of a row add up to 1."""
    experts: Mapping[int, tuple[Int64[Tensor, "n k"], Float32[Tensor, "n k"]]] = field(repr=False)
    """By layer, the chosen experts of each row and their weights."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """The results of the network in one forward pass."""

    samples: Samples = field(repr=False)
    """The plan that ran, and its samples."""
    spans: tuple[ObservedSpan, ...]
    """The requests of the pass, in the order of the plan."""
    pieces: tuple[bytes, ...] = field(repr=False)
    """Bytes of each token id; empty without a tokenizer."""

    def __iter__(self) -> Iterator[ObservedSpan]:
        return iter(self.spans)

    def __getitem__(self, request_id: int) -> ObservedSpan:
        """Return the observation of a request. Raises KeyError for one that the pass did not feed."""
        return {span.id: span for span in self.spans}[request_id]

    def rows(self) -> list[TableRow]:
        """Return one flat dictionary for each candidate of each sampled position.

        `layer` is the key in `candidates`, `offset` the position in the answer, and `sampled` 1 for the
        token that the pass sampled.
        """
        rows: list[TableRow] = []
        for span, samples in zip(self.spans, self.samples.spans, strict=True):
            for layer, candidates in span.candidates.items():
                columns = (candidates.ids, candidates.log_probabilities, candidates.entropies)
                lines = zip(span.sampled, samples.tokens, *[column.tolist() for column in columns], strict=True)
                for position, sampled, ids, logs, entropy in lines:
                    for rank, (token, log) in enumerate(zip(ids, logs, strict=True), start=1):
                        text = self.pieces[token].decode(errors="replace") if token < len(self.pieces) else ""
                        if log > float("-inf"):
                            rows.append({
                                "step": self.samples.plan.step, "request": span.id, "offset": position - span.start,
                                "layer": layer, "rank": rank, "token_id": token, "text": text, "log_probability": log,
                                "entropy": entropy, "sampled": int(token == sampled),
                            })  # fmt: skip
        return rows

    def attention_picture(self, state: State, offset: int, *, layer: int, request: int = 0) -> Picture:
        """Return a heat map of the attention of one row to the answer: a line for each observed head, and one for their mean.

        Heads are numbered in the order of `heads`. The first column is the sum over the prompt. The labels below the other
        columns are offset and token.

        Args:
            state: The state whose tokens to write below the columns.
            offset: Position in the answer that the row predicts.
            layer: Number of the layer, whose attention weights were observed.
            request: Id of the request.

        Raises:
            KeyError: If the pass did not feed the request, or the layer was not observed.
            ValueError: If the pass did not sample the position, or matplotlib is not installed.
        """
        span = self[request]
        start = span.start
        if start + offset not in span.sampled:
            raise ValueError(f"offset={offset} was not sampled in this pass: give one of {[p - start for p in span.sampled]}")
        heads = span.attentions[layer][:, span.rows_of_sampled[span.sampled.index(start + offset)]]
        sequence = state.find(request)
        fed = {p: token for p, token in zip(span.positions, span.tokens, strict=True) if token != state.config.spec.mask_id}
        known = fed | (sequence.unmasked_tokens if sequence else {})
        texts = [f"{p - start}: {piece(state.config.spec, known.get(p))}" for p in range(start, len(span.sources))]
        return heat_map(
            f"Attention of the row of offset {offset}, layer {layer}, step {self.samples.plan.step}",
            [[sum(weights[:start]), *weights[start:]] for weights in (*heads.tolist(), heads.mean(0).tolist())],
            [*(f"head {head}" for head in range(len(heads))), "mean"],
            ["prompt", *texts],
        )


def observe(engine: LoadedEngine, trace: Trace, step: int | None, chosen: Chosen) -> Observation:
    """Return the observation of a recorded step of a trace, or of the next step (None).

    If the device no longer has the KV cache, compute it again in new memory: by the passes of the trace,
    or without them from the tokens of the state.

    Raises ValueError for a step that is not in the trace, for a layer or head that the network does
    not have, and for a driver that cannot observe. Raises DlstepError if the weights have changed.
    """
    driver = engine.driver
    if not isinstance(driver, TorchDriver):
        raise ValueError(
            f"a {type(driver).__name__} cannot be observed: load the model in one process, with tensor_parallel_size=1"
        )
    driver.check(trace.first.config.spec.fingerprint)
    numbers = chosen.numbers(driver.network)
    plan, before = _found(trace, plain(step))
    state = before.state
    earlier = [event.plan for event in before.events if isinstance(event, Samples)]
    starts = [number for number, each in enumerate((*earlier, plan)) if each.cache_digest == EMPTY_CACHE]
    if starts:
        earlier = earlier[starts[-1] :]
    elif not driver.holds(plan):
        plan, earlier = _rebuilt(state)
    network = driver.network
    with driver.lent(plan, earlier) as (memory, forwards), torch.inference_mode():
        passes = [_Pass(network, memory, chosen, numbers, *forward) for forward in forwards]
        drawn = passes[-1].drawn
        samples = unpack(plan, None if drawn is None else pack(drawn).cpu())
        spans = {span.id: span for each in passes for span in each.spans(state)}
    return Observation(samples, tuple([spans[span.who.id] for span in plan.spans]), network.spec.pieces)


def _found(trace: Trace, step: int | None) -> tuple[Plan, Trace]:
    """Return the plan of a step, and the trace before it."""
    if step is None:
        plan = schedule(trace.state)
        if not plan.spans:
            raise ValueError("no request waits or runs, so there is no next step: submit a prompt, or give an earlier step")
        return plan, trace
    steps = {event.plan.step: (number, event.plan) for number, event in enumerate(trace.events) if isinstance(event, Samples)}
    if step not in steps:
        there = f"steps {min(steps)} to {max(steps)}" if steps else "no steps"
        raise ValueError(f"step={short(step)} is not in this decode, which has {there}; None is the next one")
    number, plan = steps[step]
    return plan, Trace(trace.first, trace.events[:number])


def _rebuilt(state: State) -> tuple[Plan, list[Plan]]:
    """Rebuild the state. Return its first plan that samples, and the plans before this one."""
    config, earlier = state.config, list[Plan]()
    # Wide enough for all requests at once, or some would be sampled before others are recomputed.
    rows = config.max_num_batched_tokens + config.num_pages * config.page_size
    state = rebuild(replace(state, config=replace(config, max_num_batched_tokens=rows)))
    plan = schedule(state)
    while not any(span.wanted.sampled for span in plan.spans):
        earlier.append(plan)
        state = commit(state, Samples(plan, (NO_SAMPLES,) * len(plan.spans)))
        plan = schedule(state)
    return plan, earlier


def _layers(network: PagedNetwork) -> Iterator[tuple[int, nn.Module]]:
    """Yield each layer with its number, and each final norm as the layer after them.

    An encoder and a decoder both have a layer of each number.
    """
    module: Any
    for module in network.model.modules():
        if hasattr(module, "self_attn"):
            yield module.self_attn.layer_idx, module
        elif hasattr(module, "layers") and hasattr(module, "norm"):
            yield len(network.shapes), module.norm


@dataclass(eq=False)
class _Pass:
    """One forward pass on the device, with its results for packed rows by layer or by index of hidden states."""

    network: PagedNetwork
    memory: Memory
    chosen: Chosen
    numbers: dict[str, Numbers]
    plan: Plan
    gathered: Gathered
    batch: Batch
    norm: Any = None  # the final norm of the layers that ran
    hidden: dict[int, Tensor] = field(default_factory=dict)
    attentions: dict[int, list[Tensor]] = field(default_factory=dict)  # of each span
    experts: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last = len(self.network.shapes)  # index of the last hidden states
        self.firsts = self.gathered.placed.firsts.tolist()  # the first row of each span
        network, numbers = self.network, self.numbers
        with ExitStack() as undone:
            for number, layer in _layers(network):
                if number in {*numbers["hidden_states"], *numbers["lens"], self.last}:
                    hook = layer.register_forward_pre_hook(partial(self._keep_hidden, number), with_kwargs=True)
                    undone.callback(hook.remove)
                for mixture in stacked_experts(layer) if number in numbers["experts"] else ():
                    undone.callback(mixture.register_forward_pre_hook(partial(self._keep_experts, number)).remove)
            network.watch = self._keep_attention
            undone.callback(setattr, network, "watch", None)
            undone.enter_context(torch.compiler.set_stance("force_eager"))  # compiled layers would not call hooks
            self.answer = network.forward(self.batch, self.memory)

    def _keep_hidden(self, number: int, layer: nn.Module, given: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        self.hidden[number] = (given[0] if given else named["hidden_states"])[0].clone()
        self.norm = layer  # the norm runs last

    def _keep_experts(self, number: int, _: nn.Module, given: tuple[Tensor, Tensor, Tensor]) -> None:
        self.experts[number] = given[1], given[2]

    def _keep_attention(self, layer: int, queries: Float[Tensor, "n heads dim"], window: int | None, scale: float) -> None:
        """Compute the attention weights of a chosen layer, span by span, from its queries and the keys in the pages."""
        if layer not in self.numbers["attentions"]:
            return
        spans, heads = self.gathered.spans[window], torch.tensor(self.numbers["heads"])
        own = self.attentions[layer] = list[Tensor]()
        keys = self.memory.key_pages[layer][:-1].unflatten(0, (-1, spans.page_size))
        read = heads // (queries.shape[1] // keys.shape[2])
        for first, count, end, pages in zip(self.firsts, spans.query_lens, spans.context_lens, spans.block_tables, strict=True):
            rows, place = slice(first, first + int(count)), np.arange(end)
            seen = keys[torch.from_numpy(pages[: -(-end // spans.page_size)])].flatten(0, 1)[:end, read]
            scores = torch.einsum("nhd,chd->hnc", queries[rows, heads], seen.to(queries.dtype)).float().cpu() * scale
            unseen = place >= spans.until[rows, None]
            if spans.since is not None:
                unseen |= place < spans.since[rows, None]
            hidden = torch.from_numpy(unseen)
            # For rows that see nothing, the softmax returns NaN; the second fill removes it.
            own.append(scores.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(hidden, 0.0))

    @property
    def drawn(self) -> Drawn | None:
        """The samples of the pass; None without sampled positions."""
        answer = self.answer
        return answer if answer is None or isinstance(answer, Drawn) else self.network.sample(self.batch, answer)

    def _logits(self, number: int) -> Float[Tensor, "w vocab"]:
        """Return the head's output for the hidden states of this index."""
        answer, head = self.answer, head_of(self.network.model)
        if number == self.last and isinstance(answer, Tensor):
            return answer
        rows = self.norm(self.hidden[number][self.batch.sampled_rows])
        if isinstance(answer, Drawn) and isinstance(head, nn.Linear):  # the kernel's logits were in fp32
            return logits_of(rows, head.weight, head.bias)
        return head(rows)

    def _candidates(self, logits: Float[Tensor, "w vocab"]) -> Candidates:
        sampler = replace(self.batch.sampler, statistics={"entropy"}, best=self.chosen.best, tempered=True)
        drawn = self.network.sample(replace(self.batch, sampler=sampler), logits)
        ids, probabilities, entropies = drawn.best_ids, drawn.best_probabilities, drawn.entropies
        assert ids is not None and probabilities is not None and entropies is not None, "they were requested"
        return Candidates(ids.cpu(), probabilities.cpu().log(), entropies.cpu())

    def spans(self, state: State) -> Iterator[ObservedSpan]:
        """Yield the observation of each span of the plan, which `state` scheduled."""
        shift = state.config.spec.head_shift
        lens = () if self.answer is None else sorted({*self.numbers["lens"], self.last})
        found = {number: self._candidates(self._logits(number)) for number in lens}
        logits = None
        if self.chosen.logits and found:
            logits = capped(self._logits(self.last), self.network.allowed(self.batch)["sampler"].cap)
        hidden = {number: self.hidden[number] for number in self.numbers["hidden_states"]}
        if self.last in hidden:
            hidden[self.last] = self.norm(hidden[self.last])
        begin = 0
        for place, (first, span) in enumerate(zip(self.firsts, self.plan.spans, strict=True)):
            fed, wanted = span.rows, span.wanted.sampled
            own, sampled = slice(first, first + len(fed.tokens)), slice(begin, begin := begin + len(wanted))
            sequence = state.find(span.who.id)
            assert sequence is not None, "the state has planned the span"
            yield ObservedSpan(
                id=span.who.id,
                start=sequence.request.start,
                positions=fed.positions or range(fed.start, fed.stop),
                tokens=fed.tokens,
                sampled=wanted,
                rows_of_sampled=tuple([fed.index(position - span.wanted.row_shift(shift)) for position in wanted]),
                candidates={number: candidates.at(sampled) for number, candidates in found.items()},
                sources=_sources(span),
                logits=None if logits is None else _kept(logits[sampled]),
                hidden_states={number: _kept(states[own]) for number, states in hidden.items()},
                attentions={number: weights[place] for number, weights in self.attentions.items()},
                experts={number: (ids[own].cpu(), _kept(shares[own])) for number, (ids, shares) in self.experts.items()},
            )


def _kept(tensor: Tensor) -> Float32[Tensor, "..."]:
    return tensor.to("cpu", torch.float32)


def _sources(span: Span) -> Texts:
    """Return the origin of the keys and values of each position that the span sees."""
    fed = span.rows
    sources: Texts = ("stored",) * (fed.start + fed.query_only) + ("final",) * fed.final_rows
    sources += ("window",) * (fed.stop - len(sources)) + ("stored",) * (fed.end - fed.stop)
    return sources[: fed.end]
