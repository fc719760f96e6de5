"""Scored ids on the shadow driver."""

from dataclasses import replace

import pytest

from dlstep.core import Request, SampleSpec, add, init, schedule
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing import ShadowDriver
from dlstep.testing.generators import MASK, VOCABULARY

from ...helpers.decoding import CONFIG, SPEC
from ...helpers.named_plans import PARAMS
from ...helpers.spans import changed


def shadow_rows(ids, spec, prompt=(1, 2, 3, 4), heat=0.0):
    state = init(CONFIG, MultiBD(4, 1))
    plan = schedule(add(state, Request(0, prompt, replace(PARAMS, temperature=heat))))
    plan = replace(plan, spans=(changed(plan.spans[0], scored_ids=ids),), sample_spec=spec)
    return ShadowDriver(4, 64, SPEC).run(plan).spans[0]


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_a_shadow_answers_by_content_and_agrees_with_what_it_lists(heat):
    best = shadow_rows((), SampleSpec(best=3), heat=heat)
    ids = tuple(each for i in range(4) for each in (*best.best_ids[3 * i : 3 * i + 3], best.tokens[i], -1, MASK, VOCABULARY, 7))
    found = shadow_rows(ids, SampleSpec(scored=8), heat=heat)
    assert found.tokens == best.tokens
    for i in range(4):
        own, listed = found.scored_probabilities[8 * i : 8 * i + 8], best.best_probabilities[3 * i : 3 * i + 3]
        expected = dict(reversed(list(zip(best.best_ids[3 * i : 3 * i + 3], listed, strict=True))))
        expected[best.tokens[i]] = best.probabilities[i]
        assert own[:4] == tuple(expected[token] for token in ids[8 * i : 8 * i + 4])
        assert own[4:7] == (0.0, 0.0, 0.0) and 0.0 < own[7] < 1.0
    left = zip(found.scored_probabilities[7::8], found.probabilities, strict=True)
    assert len({round(own / (1 - drawn), 9) for own, drawn in left}) == 4  # each row has an answer of its own
    other = shadow_rows((7,) * 4, SampleSpec(scored=1), prompt=(1, 2, 3, 5), heat=heat).scored_probabilities
    assert not set(other) & set(found.scored_probabilities)
    assert shadow_rows(ids, SampleSpec(scored=8, best=2), heat=heat).scored_probabilities == found.scored_probabilities
