"""The line of a state is equal for equal histories only: whatever a plan changes on a device changes the line behind it."""

from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import pytest

from dlstep.core import Admission, Grant, Grid, Merge, Plan, Rows, SamplingParams, SoftTokens, Span, next_line

COLD = SamplingParams()
BLENDS = SoftTokens((5, 6), (3, 4), (0.5, 0.25), Merge())
BASES = {
    "plain": Span(7, 2, 4, (3, 1, 4), 9, Grid(0, 3), (5, 6), (0, 0), COLD, 0),
    "denoised": Span(7, 2, 4, (3, 1, 4), 9, Grid(0, 3), (5, 6), (0, 0), COLD, 0, mode="denoise"),
    "held": Span(7, 2, 4, (3, 1, 4), 9, Grid(0, 3), (5, 6), (0, 0), COLD, 0, carry="held"),
    "blended": Span(7, 2, 4, (3, 1, 4), 9, Grid(0, 3), (5, 6), (0, 0), COLD, 0, soft=BLENDS),
}
# Other values of the fields of a span that reach the memory of a device.
SEEN: dict[str, list[Any]] = {
    "arrival": [3],
    "start": [3, 5],
    "tokens": [(3, 1, 5), (3, 1), (1, 3, 4)],
    "end": [8, 12],
    "grid": [Grid(1, 3), Grid(0, 4)],
    "query_only": [1],
    "final_rows": [1, 2],
    "soft": [
        BLENDS,
        replace(BLENDS, positions=(4, 5)),
        replace(BLENDS, positions=(4, 6)),
        replace(BLENDS, ids=(4, 3)),
        replace(BLENDS, probabilities=(0.5, 0.5)),
        replace(BLENDS, merge=Merge("iter_smooth_topk")),
        replace(BLENDS, merge=Merge(renormalize=False)),
        replace(BLENDS, merge=Merge(weight=0.5)),
        SoftTokens((5,), (3, 4), (0.5, 0.25), Merge()),
    ],
    "mode": ["encode", "denoise"],
    "carry": ["none", "fresh", "held"],
}
# The others only choose what is answered. What is sampled is in the rows; what is carried depends on the temperature, too.
UNSEEN = {"id", "wanted", "draws", "params", "seed", "joins", "penalty", "named"}
PLAN = Plan(
    4,
    11,
    (BASES["plain"],),
    releases=(1,),
    preemptions=(5,),
    admissions=(Admission(2, (8,), 0),),
    grants=(Grant(2, (9,)),),
    num_pages=40,
)
PLANS: dict[str, list[Any]] = {
    "step": [5],
    "line": [12],
    "spans": [(), (BASES["plain"],) * 2],
    "releases": [(), (5,), (1, 5)],
    "preemptions": [(), (1,)],
    "admissions": [(), (Admission(3, (8,), 0),), (Admission(2, (7,), 0),), (Admission(2, (8,), 1),), (Admission(2, (8,)),)],
    "grants": [(), (Grant(3, (9,)),), (Grant(2, (9, 10)),)],
    "num_pages": [41],
}
ROWS = (Rows((1, 2), (0.5, 0.5)),)


@pytest.mark.parametrize("base", BASES)
def test_whatever_of_a_span_reaches_the_device_changes_the_line(base: str):
    span = BASES[base]
    others = [replace(span, **{name: other}) for name, values in SEEN.items() for other in values]
    if base != "plain":
        others.append(replace(span, params=replace(COLD, temperature=0.5)))
    spans = {span, *others}
    assert len({next_line(replace(PLAN, spans=(each,)), ROWS) for each in spans}) == len(spans)


def test_every_field_of_a_span_and_of_a_plan_is_looked_at():
    assert SEEN.keys() | UNSEEN == {field.name for field in fields(Span)} and not SEEN.keys() & UNSEEN
    assert PLANS.keys() | {"wants"} == {field.name for field in fields(Plan)}


def test_whatever_of_a_plan_or_an_answer_reaches_the_device_changes_the_line():
    plans = [PLAN, *(replace(PLAN, **{name: other}) for name, values in PLANS.items() for other in values)]
    lines = [next_line(plan, ROWS) for plan in plans]
    lines += [next_line(PLAN, rows) for rows in ((), (Rows((2, 1), (0.5, 0.5)),), (Rows((1,), (0.5,)),))]
    assert all(one != other for one, other in combinations(lines, 2))
