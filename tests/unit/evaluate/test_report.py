"""The figures of a report beside a slow count."""

import pytest
from hypothesis import given, strategies as st

from dlstep.evaluate.metrics import Pair
from dlstep.evaluate.report import MOST_TOKENS, PARTS, where


@st.composite
def filled(draw: st.DrawFn) -> list[Pair]:
    """Answers with the step that unmasked each token."""
    found: list[Pair] = []
    for _ in range(draw(st.integers(1, 4))):
        steps = draw(st.integers(1, 9))
        unmasked = draw(st.lists(st.integers(1, steps), max_size=25))
        found.append(({"tokens": [0] * len(unmasked), "steps": steps}, {"decided_at": unmasked}))
    return found


@given(filled())
def test_the_figures_are_those_of_a_slow_count(pairs: list[Pair]) -> None:
    steps = sum(row["steps"] for row, _ in pairs)
    spent, per_step, late, all_ = ([0] * size for size in (PARTS + 1, MOST_TOKENS + 1, PARTS, PARTS))
    for row, beside in pairs:
        unmasked = beside["decided_at"]
        for step in range(1, row["steps"] + 1):
            per_step[min(MOST_TOKENS, unmasked.count(step))] += 1
            masked = [offset for offset, at in enumerate(unmasked) if at >= step]
            spent[masked[0] * PARTS // len(unmasked) if masked else PARTS] += 1
        for offset, at in enumerate(unmasked):
            late[offset * PARTS // len(unmasked)] += at
            all_[offset * PARTS // len(unmasked)] += row["steps"]
    late_shares, spent_shares, step_shares = where(pairs)
    assert step_shares == pytest.approx([each / steps for each in per_step]) and sum(step_shares) == pytest.approx(1)
    assert spent_shares == pytest.approx([each / steps for each in spent[:PARTS]])
    assert late_shares == pytest.approx([over / under if under else 0 for over, under in zip(late, all_, strict=True)])
