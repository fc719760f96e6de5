"""Laws of the choice of a replica: within the bound on load, the longest known prefix, always the same, and sticky."""

from collections import Counter
from functools import cache

from hypothesis import given, strategies as st

from dlstep import Request, SamplingParams
from dlstep.engine.decode import Decode
from dlstep.serve.router.placement import Candidate, Pages, choose, page_keys

from ....helpers.serving import shadow_engine

Loads = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=6)
Keys = st.lists(st.binary(min_size=1, max_size=1), max_size=5, unique=True).map(tuple)


def candidates_of(loads):
    """Replicas with these requests and known pages; their numbers have gaps, where one does not live."""
    return [Candidate(2 * number, requests, known) for number, (requests, known) in enumerate(loads)]


@given(Loads, st.randoms())
def test_the_choice_is_the_longest_known_prefix_within_the_bound(loads, random):
    candidates, fair = candidates_of(loads), 1.5 * (sum(requests for requests, _ in loads) + 1) / len(loads)
    number = choose(candidates)
    chosen = next(candidate for candidate in candidates if candidate.number == number)
    assert chosen.requests < fair
    for other in candidates:
        assert other.known <= chosen.known or other.requests >= fair
        equal = other.known == chosen.known
        assert not equal or (chosen.requests, chosen.number) <= (other.requests, other.number)
    random.shuffle(candidates)
    assert choose(candidates) == number


@given(st.integers(1, 4), st.lists(st.tuples(Keys, st.integers(0, 3)), max_size=80))
def test_equal_prompts_stay_together_until_their_replica_has_too_much(count, coming):
    """Requests come and end at random; no replica exceeds the bound, and within it requests stay with their pages."""
    pages, load = [Pages(1000) for _ in range(count)], Counter(dict.fromkeys(range(count), 0))
    homes = {}
    for keys, ended in coming:
        candidates = [Candidate(number, load[number], pages[number].known(keys)) for number in range(count)]
        chosen, fair = choose(candidates), 1.5 * (sum(load.values()) + 1) / count
        assert load[chosen] < fair
        if keys in homes and keys and load[homes[keys]] < fair:
            assert candidates[chosen].known == len(keys), "one of those that have it all"
        homes[keys] = chosen
        pages[chosen].learn(keys)
        load[chosen] += 1
        for number in range(count):
            load[number] = max(0, load[number] - ended)


@given(st.lists(Keys, max_size=20), st.integers(0, 8), Keys)
def test_pages_know_the_newest_keys(learnt, most, asked):
    pages, order = Pages(most), []
    for keys in learnt:
        pages.learn(keys)
        order = [key for key in order if key not in keys] + list(reversed(keys))
    kept = order[len(order) - most :] if most < len(order) else order
    assert len(pages._keys) == len(kept)
    known = next((place for place, key in enumerate(asked) if key not in kept), len(asked))
    assert pages.known(asked) == known


@cache
def engine(strategy):
    """An engine without a network."""
    return shadow_engine(strategy=strategy)


@given(st.lists(st.integers(3, 90), min_size=1, max_size=60), st.sampled_from(["multi_bd", "d2f"]))
def test_keys_are_those_that_the_engine_publishes(prompt, strategy):
    first = engine(strategy).first
    request = Request(0, tuple(prompt), SamplingParams(max_tokens=9))
    keys = page_keys(first, request)
    decode = Decode(first, engine(strategy).driver)
    decode.add(request)
    while not decode.state.done:
        decode.step()
    assert set(keys) <= set(decode.state.cache.index)
    if strategy == "multi_bd":
        assert len(keys) == len(prompt) // 8
