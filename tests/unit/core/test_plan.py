"""Plans and samples: named ids of wanted positions."""

from dataclasses import replace

import pytest

from dlstep.core import PLAIN, DlstepError, Rows, SamplesMismatch, Wants
from dlstep.core.plan import next_line

from ...helpers.named_plans import answered, plan_of


def test_samples_have_a_probability_for_each_named_id() -> None:
    plan = plan_of((1, 2) * 4, Wants(named=2))
    assert answered(plan, *(0.1,) * 8).rows[0].named_probabilities == (0.1,) * 8
    for count in (0, 4, 7, 9):
        with pytest.raises(SamplesMismatch, match=f"step 0, request 0: 8 named_probabilities were wanted, {count} came back"):
            answered(plan, *(0.1,) * count)
    assert answered(plan_of((1,) * 4, Wants(named=2)), *(0.1,) * 4).rows  # of a request whose rule names fewer
    assert answered(plan_of((), Wants(named=2))).rows
    for named, wants in (((1,) * 3, Wants(named=2)), ((1,) * 12, Wants(named=2)), ((1,) * 4, Wants(best=0, ties="lowest"))):
        with pytest.raises(
            DlstepError, match=rf"request 0: {len(named)} ids are named for 4 wanted positions; .*named={wants.named}"
        ):
            answered(plan_of(named, wants), *(0.1,) * len(named))


def test_wants_cover_no_more_names_than_they_have() -> None:
    assert Wants(named=2).covers(Wants(named=2)) and Wants(named=2).covers(PLAIN)
    assert not Wants(named=1).covers(Wants(named=2))
    assert not PLAIN.covers(Wants(named=1))


def test_trimmed_rows_keep_what_was_named() -> None:
    rows = Rows((1, 2), (0.5, 0.5), best_ids=(1, 2), best_probabilities=(0.5, 0.5), named_probabilities=(0.1, 0.2))
    assert rows.trimmed(Wants(best=1, named=2), Wants(named=1)) == replace(rows, best_ids=(), best_probabilities=())


def test_names_put_nothing_on_the_device() -> None:
    """They are no part of a line: what is stored is the same whatever is asked."""
    one, other = plan_of((1, 2) * 4, Wants(named=2)), plan_of((3, 4) * 4, Wants(named=2))
    assert next_line(one, ()) == next_line(other, ())
    assert answered(one, *(0.1,) * 8).line == answered(other, *(0.2,) * 8).line
