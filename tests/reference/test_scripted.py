"""Many cases in which only decisions matter: ties, exact thresholds, blocks that come to rest and some that do not."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from dlstep import strategies
from dlstep.core import with_options

from . import (
    blockwise,
    dmax,
    dual_cache,
    edit,
    fast_dllm_v2,
    test_blockwise,
    test_dmax,
    test_dual_cache,
    test_edit,
    test_fast_dllm_v2,
)
from .models import EOS, WORDS
from .scripted import Piecewise, Scripted, scripted_answer

Loop = Callable[[Scripted, Sequence[int], int, dict[str, Any]], list[int]]


def many(count: int, stress: int) -> pytest.MarkDecorator:
    """So many cases, and more by `make stress`."""
    return pytest.mark.parametrize("count", [count, pytest.param(stress, marks=pytest.mark.stress)])


def check(name: str, ties: str, options: Callable[[Random], dict[str, Any]], loop: Loop, count: int) -> None:
    """Compare `count` random cases."""
    random = Random(1)
    stopped = 0
    for seed in range(count):
        fields = options(random)
        fields["block_size"] = size = random.choice((1, 2, 3, 4, 6))
        prompt = [random.randrange(EOS, WORDS) for _ in range(random.randrange(1, 2 * size + 2))]
        max_tokens = random.randrange(1, 3 * size + 3)
        calm = random.choice((0.0, 0.5, 0.9))
        expected = loop(Scripted(seed, calm, ties=ties), prompt, len(prompt) + max_tokens, fields)
        strategy = with_options(strategies.PLUGINS.value(name), fields)
        assert scripted_answer(Scripted(seed, calm, ties=ties), prompt, max_tokens, strategy) == expected, (seed, fields)
        stopped += len(expected) < max_tokens
    assert count // 20 < stopped < count


def exact(options: Callable[[Random], dict[str, Any]]) -> Callable[[Random], dict[str, Any]]:
    """`options`, with an accept threshold, if any, that probabilities often equal."""

    def exactly(random: Random) -> dict[str, Any]:
        fields = options(random)
        if "accept_threshold" in fields:
            fields["accept_threshold"] = random.choice((0.0, 0.3, 0.5, 0.6, 0.9, 1.0))
        return fields

    return exactly


@pytest.mark.parametrize("name", ["multi_bd", "d2f"])
@many(150, 500)
def test_blocks_unmasked_once(name: str, count: int) -> None:
    def loop(network, prompt, limit, fields):
        return blockwise.decode(network, prompt, limit, blockwise.Rules(**fields, from_prompt=name == "d2f"))

    check(name, "highest", exact(test_blockwise.options), loop, count)


@many(200, 700)
def test_edited_blocks(count: int) -> None:
    def options(random):
        return exact(test_edit.options)(random) | {"edit_threshold": random.choice((0.0, 0.3, 0.5, 1.0))}

    def loop(network, prompt, limit, fields):
        return edit.decode(network, prompt, limit, edit.Rules(**fields))

    check("multi_bd_edit", "lowest", options, loop, count)


@many(200, 700)
def test_refreshed_blocks(count: int) -> None:
    def loop(network, prompt, limit, fields):
        return dmax.decode(network, prompt, limit, dmax.Rules(**fields))

    check("dmax", "lowest", exact(test_dmax.options), loop, count)


@many(150, 500)
def test_sub_blocks(count: int) -> None:
    random = Random(2)
    for seed in range(count):
        fields = exact(test_fast_dllm_v2.options)(random)
        size = fields["block_size"] = random.choice((1, 2, 3))
        prompt = [random.randrange(EOS, WORDS) for _ in range(random.randrange(1, 4 * size + 2))]
        max_tokens = random.randrange(1, 6 * size)
        calm, limit = random.choice((0.0, 0.9)), len(prompt) + max_tokens

        def unit(position: int, size: int = size, limit: int = limit) -> range:
            return range(position // size * size, min(position // size * size + size, limit))

        networks = [Piecewise(seed, calm, ties="highest", shift=1, unit=unit) for _ in range(2)]
        expected = fast_dllm_v2.decode(networks[0], prompt, limit, fast_dllm_v2.Rules(**fields))
        strategy = with_options(strategies.PLUGINS.value("fast_dllm_v2"), fields)
        assert scripted_answer(networks[1], prompt, max_tokens, strategy) == expected, (seed, fields)


@pytest.mark.parametrize("shift", [0, 1])
@many(120, 400)
def test_blocks_of_a_canvas(shift: int, count: int) -> None:
    random = Random(3)
    for seed in range(count):
        fields = exact(test_dual_cache.options)(random)
        size = fields["block_size"]
        prompt = [random.randrange(EOS, WORDS) for _ in range(random.randrange(1, 8))]
        max_tokens = random.randrange(1, 3 * size + 2)
        calm, limit = random.choice((0.0, 0.9)), len(prompt) + max_tokens

        def unit(position: int, size: int = size, length: int = len(prompt), limit: int = limit) -> range:
            start = length + (position - length) // size * size
            return range(start, min(start + size, limit))

        networks = [Piecewise(seed, calm, ties="highest", shift=shift, unit=unit) for _ in range(2)]
        expected = dual_cache.decode(networks[0], prompt, limit, test_dual_cache.rules_of(fields))
        strategy = with_options(strategies.PLUGINS.value("dual_cache"), fields)
        assert scripted_answer(networks[1], prompt, max_tokens, strategy) == expected, (seed, fields)
