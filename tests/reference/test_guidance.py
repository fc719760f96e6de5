"""Guided canvases against LLaDA's loop, and guidance of strength 0 against none."""

from random import Random

from dlstep import Config, Request, SamplingParams, init, strategies
from dlstep.driver import TorchDriver
from dlstep.engine.decode import Decode
from dlstep.processors.guidance import Guidance
from dlstep.rules.quota import Quota

from . import guidance
from .engine import CLOSE
from .models import EOS, NEVER, WORDS, Dense


def test_guided_answers_are_those_of_the_loop(pairs):
    """All in one batch with requests without guidance, so that rows of several second passes lie side by side."""
    random, compared, moved = Random(5), 0, 0
    for pair in pairs:
        pair.head.bias[EOS] = NEVER
        dense = Dense(pair.network)
        block, steps = random.choice((3, 4)), random.choice((1, 2, 3))
        strategy = strategies.make("dual_cache", block_size=block, cache="none", rule=Quota(steps))
        config = Config(pair.checkpoint.spec, page_size=4, num_pages=200, max_model_len=40)
        decode = Decode(init(config, strategy), TorchDriver(pair.checkpoint, config), prunes=False)
        asked = []
        for number in range(7):
            prompt = tuple(random.randrange(EOS + 1, WORDS) for _ in range(random.randrange(1, 9)))
            asked.append((prompt, block * random.randrange(1, 4), random.choice((0.0, 0.5, 1.0, 2.5)) if number else 0.0))
            params = SamplingParams(max_tokens=asked[-1][1], ignore_eos=True, processors=[Guidance(asked[-1][2])])
            decode.add(Request(number, prompt, params))
        while not decode.state.done:
            decode.step()
        for number, (prompt, length, scale) in enumerate(asked):
            dense.smallest = 1.0
            expected = guidance.decode(dense, prompt, length, block, steps, scale)
            if dense.smallest < CLOSE:
                continue
            sequence = decode.state.finished[number]
            assert list(sequence.answer) == expected, (prompt, length, block, steps, scale, sequence.error)
            compared += 1
            moved += expected != guidance.decode(dense, prompt, length, block, steps, 0.0)
    assert compared >= 20 and moved > 5, (compared, moved)
