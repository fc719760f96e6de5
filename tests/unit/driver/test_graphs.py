"""Steps that graphs capture, run without one: padded to a bucket, with kernels, they answer as in the plan's own sizes."""

from contextlib import nullcontext
from dataclasses import fields, replace
from functools import lru_cache
from random import Random
from unittest.mock import create_autospec

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from dlstep import LLM
from dlstep.core import Config, Request, SamplingParams, add, commit, init, prepare, schedule
from dlstep.driver import TorchDriver, graphs, tables as driver_tables
from dlstep.driver.buckets import _equal, fill, room_for, smallest_bucket
from dlstep.driver.graphs import Captured, PaddedExecutor
from dlstep.driver.lowering import gather
from dlstep.driver.tables import PageTables
from dlstep.driver.warmup import buckets_for, drawn_samples
from dlstep.models import load_checkpoint
from dlstep.models.networks import paged
from dlstep.strategies.dmax import DMax
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.strategies.multi_bd import MultiBD
from dlstep.strategies.multi_bd_edit import MultiBDEdit
from dlstep.testing.generators import table_automaton

from ...helpers.decoding import by_driver, decoded, with_requests
from ...helpers.naming import Loyal, NamingGrid
from ...helpers.tiny_families import write_checkpoint
from ...helpers.triton_interpreter import needs_interpreter
from ...reference.gemma_recipe import write_preset
from .test_torch_driver_canvas import GEMMA


def config_of(spec, **own):
    """Room for a few short requests."""
    usual = {"page_size": 4, "num_pages": 60, "max_model_len": 48, "max_num_batched_tokens": 64, "max_num_reqs": 3}
    return Config(spec, **usual | own)


def requests(lengths, params):
    """Requests with prompts of these lengths, and parameters by number."""
    return [Request(number, tuple(range(10, 10 + length)), params(number)) for number, length in enumerate(lengths)]


def padded(checkpoint, config):
    """A driver that runs what graphs would be captured of."""
    driver = TorchDriver(checkpoint, config)
    main, network = driver._caches.main, paged(checkpoint, config.spec)
    main.executor = PaddedExecutor(network, main.memory, driver._target, captures=False)
    return driver


def roomier(gathered, canvas):
    """A bucket with more room than is needed."""
    least = smallest_bucket(gathered, canvas)
    return replace(least, rows=least.rows + (canvas or 16), spans=least.spans + 1, pages=least.pages * 2)


PADDED = [
    ("plain", MultiBD(4, 2), 0.8),
    ("plain", NamingGrid(4, 2, rule=Loyal(0.03)), 0.8),
    ("plain", DMax(4, 2, accept_threshold=0.2), 0.0),
    ("plain", DMax(4, 2, accept_threshold=0.2, token_merge_mode="iter_smooth_topk", token_merge_top_k=3), 0.0),
    ("sliding", MultiBDEdit(4, 2, max_post_edit_steps=0, penalty_lambda=1.0), 0.0),
    ("shifted", FastDLLMV2(2, 2), 0.0),
    ("gemma", GEMMA, 0.0),
]
# The least room is tried of the first by `make test`, of all by `make stress`.
ROOMS = [(case, "roomier", ()) for case in PADDED]
ROOMS += [(case, "least", () if case is PADDED[0] else pytest.mark.stress) for case in PADDED]


@needs_interpreter
@pytest.mark.parametrize(
    "kind, strategy, temperature, room", [pytest.param(*case, room, marks=marks) for case, room, marks in ROOMS]
)
def test_padding_changes_no_answer(kind, strategy, temperature, room, checkpoints, tmp_path, monkeypatch):
    checkpoint = load_checkpoint(write_preset("converging", tmp_path)) if kind == "gemma" else checkpoints[kind]
    config = config_of(checkpoint.spec)
    met = []

    def chosen(gathered, canvas):
        met.append(roomier(gathered, canvas) if room == "roomier" else smallest_bucket(gathered, canvas))
        return met[-1]

    monkeypatch.setattr(graphs, "smallest_bucket", chosen)
    answers = []
    for driver in (TorchDriver(checkpoint, config), padded(checkpoint, config)):
        asked = requests((3, 5), lambda number: SamplingParams(max_tokens=2 + number, temperature=temperature, seed=number))
        state = decoded(with_requests(config, strategy, asked), by_driver(driver))
        answers.append([state.finished[number].answer for number in range(2)])
    assert answers[0] == answers[1]
    assert len(met) > 1
    assert all(bucket.kind.soft for bucket in met[1:]) == (kind == "plain" and isinstance(strategy, DMax))


@pytest.mark.parametrize("kind", ["plain", "sliding"])
def test_tiles_that_are_left_are_those_that_would_be_made(kind, checkpoints):
    checkpoint = checkpoints[kind]
    config = config_of(checkpoint.spec)
    driver = TorchDriver(checkpoint, config)
    target = driver._target
    asked = requests((3, 6, 5), lambda number: SamplingParams(max_tokens=9 + 4 * number))
    state = with_requests(config, MultiBD(4, 2), asked)
    kept = {}
    left = 0
    while not state.done:
        plan = schedule(state)
        samples = driver.run(plan)
        if any(span.wanted.sampled for span in plan.spans):
            gathered = gather(plan, driver._current.tables, target)
            bucket = smallest_bucket(gathered, 0)
            fresh = room_for(bucket, gathered, target)
            fill(fresh, bucket, gathered, target)
            arena, before = kept.get(bucket, (room_for(bucket, gathered, target), None))
            fill(arena, bucket, gathered, target, before and before.spans)
            assert all((arena.hosts[name] == fresh.hosts[name]).all() for name in fresh.hosts)
            left += before is not None and all(
                np.array_equal(before.spans[window].until, each.until) for window, each in gathered.spans.items()
            )
            kept[bucket] = arena, gathered
        state = commit(state, samples)
    assert left > 2


@pytest.fixture(scope="module")
def networks(checkpoints, tmp_path_factory):
    gemma = load_checkpoint(write_preset("converging", tmp_path_factory.mktemp("gemma")))
    every = {**checkpoints, "gemma": gemma}
    drivers = {name: TorchDriver(each, config_of(each.spec, num_pages=8)) for name, each in every.items()}
    return {name: (driver.network, driver._target) for name, driver in drivers.items()}


@lru_cache
def captured(config, strategy, network, target):
    """Every bucket that is captured before there are requests."""
    return frozenset(bucket for _, buckets in buckets_for(config, strategy, network, target) for bucket in buckets)


KINDS = [
    *(pytest.param(*case[:2], marks=() if case is PADDED[0] else pytest.mark.full) for case in PADDED),
    pytest.param("plain", DualCache(block_size=8), marks=pytest.mark.full),
]


@pytest.mark.parametrize("kind, strategy", KINDS)
@settings(max_examples=20)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    budget=st.sampled_from([32, 512]),
    reqs=st.sampled_from([3, 8]),
    least=st.sampled_from([1, 27]),
    temperature=st.sampled_from([0.0, 0.7]),
    seed=st.integers(0, 99),
)
@example(lengths=[4] * 8, budget=32, reqs=8, least=27, temperature=0.0, seed=0)
def test_all_that_requests_need_is_captured_before(kind, strategy, lengths, budget, reqs, least, temperature, seed, networks):
    network, target = networks[kind]
    config = config_of(network.spec, num_pages=200, max_num_batched_tokens=budget, max_num_reqs=reqs)
    ready = captured(config, strategy, network, target)
    tables = PageTables(config)
    random, hot = Random(seed), SamplingParams(temperature=temperature, ignore_eos=True)
    asked = requests(lengths, lambda _: replace(hot, max_tokens=random.randrange(least, 28)))
    state = with_requests(config, strategy, asked)
    met = 0
    while not state.done:
        plan = schedule(state)
        tables.apply(plan)
        if any(span.wanted.sampled for span in plan.spans):
            gathered = gather(network.forwards(plan)[-1], tables, target)
            bucket = smallest_bucket(gathered, network.canvas_length)
            assert bucket in ready
            met += 1
        state = commit(state, drawn_samples(plan, 3, random))
    assert met or all(sequence.finish == "rejected" for sequence in state.finished.values())


@pytest.mark.parametrize("kind", ["plain", "sliding"])
@settings(max_examples=25)
@given(
    lengths=st.lists(st.sampled_from([3, 3, 6, 9]), min_size=2, max_size=5), pages=st.integers(8, 12), seed=st.integers(0, 99)
)
def test_what_is_taken_over_is_what_would_be_gathered(kind, lengths, pages, seed, checkpoints):
    checkpoint = checkpoints[kind]
    config = config_of(checkpoint.spec, num_pages=pages, max_model_len=32, max_num_reqs=1 + seed % 2)
    driver = TorchDriver(checkpoint, config)
    state, random = init(config, MultiBD(4, 2)), Random(seed)
    for number, length in enumerate(lengths):
        params = SamplingParams(max_tokens=random.choice([1, 1, 4, 12]), ignore_eos=True)
        state = add(state, Request(number, tuple(range(10 + number, 10 + number + length)), params))
    while not state.done:
        plan = schedule(state)
        driver.apply_ownership(plan)
        for gathered in driver.gather(plan):
            now = driver._current
            anew = gather(plan, now.tables, driver._target)
            assert gathered.arrays.keys() == anew.arrays.keys()
            assert all((gathered.arrays[name] == anew.arrays[name]).all() for name in anew.arrays)
            for window, spans in anew.spans.items():
                assert _equal(gathered.spans[window], spans)
        samples = drawn_samples(plan, 3, random)
        driver._current.digest = samples.cache_digest
        state = commit(state, samples)


def unchecked(*values):
    """The value with these fields, the types of which are not checked: graphs on a host are none."""
    captured = object.__new__(Captured)
    for field, value in zip(fields(Captured), values, strict=True):
        object.__setattr__(captured, field.name, value)
    return captured


class ReplayedOnHost:
    """Stands for a CUDA graph: runs the parts of a step, on the tensors that were there when it was captured."""

    def __init__(self, *parts):
        self._parts = parts

    def replay(self):
        for part in self._parts:
            part()

    def reset(self): ...


EVENT = create_autospec(torch.cuda.Event, instance=True)


def with_graphs(driver, monkeypatch):
    """The padded driver, which captures every bucket when it occurs for the second time."""
    executor = driver._caches.main.executor
    assert isinstance(executor, PaddedExecutor)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda: EVENT)
    monkeypatch.setattr(executor, "_captures", True)
    monkeypatch.setattr(executor, "_host_copy", executor._warm_up)
    monkeypatch.setattr(executor, "_recorded", ReplayedOnHost)
    monkeypatch.setattr(graphs, "Captured", unchecked)
    return driver


def automaton_of(vocab_size, forbidden, states, seed):
    """All strings of a random walk over the states; one of the classes of ids leaves each state as it is."""
    random = Random(seed)
    classes = [0 if token in forbidden else random.randint(1, 6) for token in range(vocab_size)]
    every = range(states)
    rows = [{letter: random.randrange(states) for letter in range(2, 7) if random.random() < 0.5} for _ in every]
    return table_automaton(f"drawn {seed}", classes, every, [{1: state, **row} for state, row in enumerate(rows)])


WAVES = ((0, 0), (2,), (0, 3), (9, 0, 9))  # states of the automata of requests that run at a time; 0: no constraint


@needs_interpreter
@pytest.mark.parametrize("capacity", [2, 4096])
def test_graphs_read_the_masks_of_each_forward_pass(capacity, checkpoints, monkeypatch):
    """Also once the table of masks was replaced by a larger one, which drops the graphs that read it, and no others."""
    monkeypatch.setattr(driver_tables, "CAPACITY", capacity)
    checkpoint = checkpoints["plain"]
    spec = checkpoint.spec
    config = config_of(spec, num_pages=90)
    graphed = with_graphs(padded(checkpoint, config), monkeypatch)
    executor = graphed._caches.main.executor
    assert isinstance(executor, PaddedExecutor)
    answers, dropped, kinds = [], 0, set()
    for driver in (TorchDriver(checkpoint, config), graphed):
        state = init(config, MultiBD(4, 2))
        for wave, sizes in enumerate(WAVES):
            for size in sizes:
                number = state.next_seq_id
                params = SamplingParams(max_tokens=16 + number, temperature=0.8, seed=number, ignore_eos=not size)
                constraint = automaton_of(spec.vocab_size, {spec.mask_id, *spec.eos_ids}, size, number) if size else None
                state = add(state, Request(number, tuple(range(10, 14 + wave)), params, automaton=constraint))
            while not state.done:
                words, before = driver._target.masks.words, dict(executor._captured)
                state = commit(state, driver.run(schedule(state)))
                for bucket, captured in before.items():
                    assert len(captured.graphs) == 1 + bucket.kind.masked
                    reads = bucket.kind.masked
                    gone = executor._captured.get(bucket) is not captured
                    assert gone == (reads and driver._target.masks.words is not words)
                    dropped += gone
        kinds |= {bucket.kind.masked for bucket in executor._captured}
        answers.append([state.finished[number].answer for number in range(state.next_seq_id)])
        for done in state.finished.values():
            assert done.finish in ("stop", "length")
            automaton = done.request.automaton
            assert automaton is None or automaton.accepts([token for token in done.answer if token not in spec.eos_ids])
    assert answers[0] == answers[1]
    assert kinds == {False, True}
    assert (dropped > 0) == (capacity == 2)
    assert executor.graph_count == len(executor._captured)


@needs_interpreter
def test_a_pass_that_nobody_waits_for_changes_no_samples(checkpoints, monkeypatch):
    """Neither its own, which may be taken later, nor those of the next pass, which replays the same graph."""
    checkpoint = checkpoints["plain"]
    config = config_of(checkpoint.spec, num_pages=40, max_model_len=40, max_num_batched_tokens=12, max_num_reqs=2)
    one, other = (with_graphs(padded(checkpoint, config), monkeypatch) for _ in range(2))
    state = init(config, MultiBD(4, 2))
    for number in range(3):  # the first prompt takes several passes that sample nothing
        prompt = tuple(range(10, 40)) if number == 0 else (10, 11 + number)
        state = add(state, Request(number, prompt, SamplingParams(max_tokens=8, ignore_eos=True)))
    while not state.done:
        plan = schedule(state)
        abandoned, pending = one.start(plan), one.start(plan)
        prepared = prepare(state, plan)
        samples = pending.wait()
        after = commit(state, samples, prepared)
        if not after.done:
            later = one.start(schedule(after))
            assert abandoned.wait() == samples == other.run(plan)
            later.wait()
        state = after


class Launched(TorchDispatchMode):
    """Records each operation with the shapes and dtypes of its tensors."""

    def __init__(self):
        super().__init__()
        self.operations = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [each for each in (*args, *(kwargs or {}).values()) if isinstance(each, torch.Tensor)]
        self.operations.add((str(func), tuple((tuple(each.shape), each.dtype) for each in tensors)))
        return func(*args, **(kwargs or {}))


# Experts multiply as many rows as the layer's router sends them, so only the names of their operations are compared.
@pytest.mark.parametrize(
    "family, compared", [("sdar", 2), ("dream", 2), ("diffusion_gemma", 1), ("llada2", 1), ("sdar_moe", 1)]
)
def test_the_first_layers_launch_all_that_a_network_launches(family, compared, tmp_path):
    facts = {} if family == "diffusion_gemma" else {"num_hidden_layers": 5}
    write_checkpoint(tmp_path, family, seed=1, **facts)
    engine = LLM(str(tmp_path), family=family, max_model_len=64).engine
    driver = engine.driver
    layers = [module for module in driver.network.model.modules() if hasattr(module, "self_attn")]
    runs = []
    for layer in layers:
        layer.register_forward_hook(lambda *_: runs.append(0))
    state = add(engine.first, Request(0, (10, 11, 12), SamplingParams(max_tokens=20, ignore_eos=True)))
    for _ in range(3):
        plan, found, counts = schedule(state), [], []
        samples = driver.run(plan)
        for context in (driver.network.only_first_layers(), nullcontext()):
            runs.clear()
            with context, Launched() as launched:
                driver.run(plan)  # again: its pages are owned already
            found.append({operation[:compared] for operation in launched.operations})
            counts.append(len(runs))
        assert found[0] == found[1]
        assert 0 < counts[0] < counts[1]
        state = commit(state, samples)


@pytest.mark.parametrize("kind, needed", [("plain", 1), ("sliding", 2)])
def test_the_first_bucket_of_a_kind_is_warmed_up_by_all_layers(kind, needed, checkpoints, monkeypatch):
    checkpoint = checkpoints[kind]
    config = config_of(checkpoint.spec)
    driver = padded(checkpoint, config)
    executor = driver._caches.main.executor
    counts = []
    network = checkpoint.network.base_model

    def counted(batch, gathered):
        counts.append(len(network.layers))
        return torch.empty(1, 1)

    monkeypatch.setattr(executor, "_answer", counted)
    kinds = buckets_for(config, MultiBD(4, 2), executor._network, driver._target)
    assert len(kinds) > 1
    for idle, buckets in kinds:
        for bucket in buckets:
            executor._warm_up(bucket, executor._filled(bucket, idle)[1], idle)
        assert counts == [2, *[needed] * (len(buckets) - 1)]
        counts.clear()
    assert len(network.layers) == 2
