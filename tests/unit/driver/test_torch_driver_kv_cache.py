"""KV caches of one device: each keeps what it stored; beyond the limit the least recently used one is evicted."""

# Limits are given by name.
# pyright: reportArgumentType=false

from weakref import ref

import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep.core import CacheMismatch, Config, Rebuild, Request, SamplingParams, add, commit, init, schedule
from dlstep.driver import TorchDriver
from dlstep.engine.decode import Decode
from dlstep.engine.overrides import forked
from dlstep.rules.threshold import Threshold
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.random_checkpoints import BLOCK, WORDS

STRATEGY = MultiBD(block_size=BLOCK, buffer_size=2, rule=Threshold(0.25))
ROOM = {"page_size": 4, "max_model_len": 48, "max_num_batched_tokens": 12, "max_num_reqs": 2}
PAGES = 14


def state_of(checkpoint, seed, *, num_pages=PAGES, length=20):
    """A state with one request, whose prompt is fed in several forward passes."""
    prompt = tuple(3 + (seed * 7 + place * (seed + 1)) % (WORDS - 3) for place in range(length))
    config = Config(checkpoint.spec, num_pages=num_pages, **ROOM)
    return add(init(config, STRATEGY), Request(0, prompt, SamplingParams(max_tokens=16, ignore_eos=True)))


def driver_of(checkpoint, most):
    return TorchDriver(checkpoint, Config(checkpoint.spec, num_pages=40, **ROOM), max_caches=most)


def answer(state):
    return state.finished[0].answer


def step(state, driver, owner=0):
    return commit(state, driver.run(schedule(state), owner))


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    turns=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 0, 1, 26])), min_size=10, max_size=40),
    places=st.integers(1, 5),
    sizes=st.lists(st.sampled_from([13, 14, 40]), min_size=4, max_size=4),
    lengths=st.lists(st.sampled_from([20, 20, 29]), min_size=4, max_size=4),
)
def test_states_that_take_turns_answer_as_alone(checkpoints, turns, places, sizes, lengths):
    checkpoint = checkpoints["plain"]
    driver = driver_of(checkpoint, places)
    states = [state_of(checkpoint, n, num_pages=sizes[n], length=lengths[n]) for n in range(4)]
    events = []
    decodes = [Decode(state, driver, prunes=False, record=events.append) for state in states]
    for turn, pages in (*turns, *((turn, 0) for turn in range(4))):
        decodes[turn].grow(decodes[turn].state.config.num_pages + pages)
        decodes[turn].step()
    for number, decode in enumerate(decodes):
        while not decode.state.done:
            decode.step()
        alone = Decode(states[number], driver_of(checkpoint, 1), prunes=False)
        while not alone.state.done:
            alone.step()
        assert answer(decode.state) == answer(alone.state)
    assert places < 4 or Rebuild() not in events, "a cache was lost when it grew"
    for number, decode in enumerate(decodes):  # a grown cache replaces the smaller one
        decode.close()
        assert len([*driver._caches]) <= 4 - number


def test_a_cache_that_is_held_continues_and_an_evicted_one_does_not(checkpoints):
    checkpoint = checkpoints["plain"]
    driver = driver_of(checkpoint, 2)
    first, second, third = (step(state_of(checkpoint, number), driver, number) for number in range(3))
    step(second, driver, 1)
    step(third, driver, 2)
    for owner in range(3):  # also not on the cache of another owner
        with pytest.raises(CacheMismatch, match="which no KV cache of its owner has"):
            driver.run(schedule(first), owner)


def test_what_is_released_makes_room(checkpoints):
    checkpoint = checkpoints["plain"]
    driver = driver_of(checkpoint, 2)
    first, _ = (step(state_of(checkpoint, number), driver, number) for number in range(2))
    assert not driver.fork(first.cache_digest, 3)
    driver.release(1)
    third = step(state_of(checkpoint, 2), driver, 2)
    step(step(first, driver, 0), driver, 0)
    step(third, driver, 2)
    driver.release(12345)  # an owner of no cache


def test_a_fork_goes_on_where_its_origin_was(checkpoints):
    checkpoint = checkpoints["plain"]
    driver = driver_of(checkpoint, 2)
    state = state_of(checkpoint, 1)
    while not state.running or not state.running[0].steps:
        state = step(state, driver)
    assert driver.fork(state.cache_digest, 1) and not driver.fork(state.cache_digest, 2), "there are two places"
    origin = branch = state
    while not origin.done:
        origin = step(origin, driver)
    branch = forked(branch, branch.strategy, {"accept_threshold": 0.1})
    while not branch.done:
        branch = step(branch, driver, 1)
    again, fresh = state_of(checkpoint, 1), driver_of(checkpoint, 1)
    while not again.done:
        again = step(again, fresh)
        again = forked(again, again.strategy, {"accept_threshold": 0.1}) if again.step == state.step else again
    assert answer(branch) == answer(again) and origin.finished[0].finish == "length"
    assert not driver.fork(99, 3)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(ends=st.permutations(range(4)), ways=st.lists(st.sampled_from(["close", "collect", "both"]), min_size=3, max_size=3))
def test_decodes_that_end_leave_the_caches_of_their_copies_and_twins(checkpoints, ends, ways):
    driver, state, events = driver_of(checkpoints["plain"], 4), state_of(checkpoints["plain"], 1), []
    origin, twin = (Decode(state, driver, prunes=False, record=events.append) for _ in range(2))
    for decode in (origin, twin) * 4:
        decode.step()
    live = {0: origin, 1: twin} | {n: Decode(origin.state, driver, prunes=False, record=events.append) for n in (2, 3)}
    kept = []
    del origin, twin, decode
    for number, way in zip(ends, ways, strict=False):
        ended = live.pop(number)
        if way != "collect":
            ended.close()
        if way == "close":
            kept.append(ended)
        del ended  # collects it unless it is kept
        for decode in live.values():
            decode.step()
        del decode
    assert Rebuild() not in events


def test_the_main_cache_is_kept_in_addition_to_the_others(checkpoints):
    checkpoint = checkpoints["plain"]
    driver = driver_of(checkpoint, 1)
    main = step(state_of(checkpoint, 0, num_pages=40), driver)
    for number in range(3):
        step(state_of(checkpoint, number), driver, 1 + number)
    main = step(main, driver)
    driver.release(0)
    with pytest.raises(CacheMismatch):
        driver.run(schedule(main))


class SmallDevice:
    """Memory for the main KV cache and `room` further pages."""

    def __init__(self, driver, room):
        self.make, self.room = driver.network.memory, room
        self.allocated = []
        driver.network.memory = self

    def __call__(self, num_pages, page_size, slots):
        used = sum(pages for tensor, pages in self.allocated if tensor() is not None)
        if used + num_pages > self.room:
            raise torch.OutOfMemoryError(f"{num_pages} pages, and {used} of {self.room} are used")
        memory = self.make(num_pages, page_size, slots)
        self.allocated.append((ref(memory.key_pages[0]), num_pages))
        return memory


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    turns=st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=2, max_size=12),
    places=st.integers(1, 3),
)
def test_evicted_caches_leave_their_memory_to_new_ones(checkpoints, turns, places):
    """The device has room for the largest one alone; forward passes that fail leave free caches."""
    checkpoint = checkpoints["plain"]
    driver = driver_of(checkpoint, places)
    SmallDevice(driver, 16)
    decodes = [Decode(state_of(checkpoint, n, num_pages=12 + 2 * n), driver, prunes=False) for n in range(3)]
    for turn, grows, fails in turns:
        if grows:
            decodes[turn].grow(16)  # there is no room for the new cache beside the old one
        if fails:
            with pytest.MonkeyPatch.context() as patched, pytest.raises(RuntimeError, match="a forward pass failed"):
                patched.setattr(driver, "submit", failing)
                decodes[turn].step()
        else:
            decodes[turn].step()


def failing(*args):
    raise RuntimeError("a forward pass failed")
