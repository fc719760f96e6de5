"""Named ids on the shadow driver."""

from dataclasses import replace

import pytest

from dlstep.core import DlstepError, Request, Rows, State, Wants, add, init, schedule
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing import ShadowDriver
from dlstep.testing.generators import MASK, VOCABULARY

from ...helpers.named_plans import ASKED, CONFIG, SPEC


def shadow_rows(named: tuple[int, ...], wants: Wants, prompt: tuple[int, ...] = (1, 2, 3, 4), heat: float = 0.0) -> Rows:
    state: State = init(CONFIG, MultiBD(4, 1))
    plan = schedule(add(state, Request(0, prompt, replace(ASKED, temperature=heat))))
    plan = replace(plan, spans=(replace(plan.spans[0], named=named),), wants=wants)
    return ShadowDriver(4, 64, SPEC).run(plan).rows[0]


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_a_shadow_answers_by_content_and_agrees_with_what_it_lists(heat: float) -> None:
    best = shadow_rows((), Wants(best=3), heat=heat)
    ids = tuple(each for i in range(4) for each in (*best.best_ids[3 * i : 3 * i + 3], best.tokens[i], -1, MASK, VOCABULARY, 7))
    found = shadow_rows(ids, Wants(named=8), heat=heat)
    assert found.tokens == best.tokens
    for i in range(4):
        own, listed = found.named_probabilities[8 * i : 8 * i + 8], best.best_probabilities[3 * i : 3 * i + 3]
        told = dict(reversed(list(zip(best.best_ids[3 * i : 3 * i + 3], listed, strict=True))))
        told[best.tokens[i]] = best.probabilities[i]
        assert own[:4] == tuple(told[token] for token in ids[8 * i : 8 * i + 4])
        assert own[4:7] == (0.0, 0.0, 0.0) and 0.0 < own[7] < 1.0
    left = zip(found.named_probabilities[7::8], found.probabilities, strict=True)
    assert len({round(own / (1 - drawn), 9) for own, drawn in left}) == 4  # each row has an answer of its own
    other = shadow_rows((7,) * 4, Wants(named=1), prompt=(1, 2, 3, 5), heat=heat).named_probabilities
    assert not set(other) & set(found.named_probabilities)
    assert shadow_rows(ids, Wants(named=8, best=2), heat=heat).named_probabilities == found.named_probabilities


def test_a_shadow_refuses_names_that_do_not_fit() -> None:
    for named, most in (((1,) * 5, 2), ((1,) * 8, 1), ((1,) * 4, 0)):
        with pytest.raises(DlstepError, match=rf"{len(named)} ids are named for 4 wanted positions; .*named={most}"):
            shadow_rows(named, Wants(named=most, best=1))
