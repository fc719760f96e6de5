"""The figures of a report beside a slow count."""

import pytest
from hypothesis import given, strategies as st

from dlstep.evaluate.metrics import Pair
from dlstep.evaluate.report import MOST_TOKENS, PARTS, where


@st.composite
def filled(draw: st.DrawFn) -> list[Pair]:
    """Answers with the step that decided each token."""
    found: list[Pair] = []
    for _ in range(draw(st.integers(1, 4))):
        steps = draw(st.integers(1, 9))
        decided = draw(st.lists(st.integers(1, steps), max_size=25))
        found.append(({"tokens": [0] * len(decided), "steps": steps}, {"decided_at": decided}))
    return found


@given(filled())
def test_the_figures_are_those_of_a_slow_count(pairs: list[Pair]) -> None:
    steps = sum(row["steps"] for row, _ in pairs)
    spent, taken, late, all_ = ([0] * size for size in (PARTS + 1, MOST_TOKENS + 1, PARTS, PARTS))
    for row, beside in pairs:
        decided = beside["decided_at"]
        for step in range(1, row["steps"] + 1):
            taken[min(MOST_TOKENS, decided.count(step))] += 1
            undecided = [offset for offset, at in enumerate(decided) if at >= step]
            spent[undecided[0] * PARTS // len(decided) if undecided else PARTS] += 1
        for offset, at in enumerate(decided):
            late[offset * PARTS // len(decided)] += at
            all_[offset * PARTS // len(decided)] += row["steps"]
    found = where(pairs)
    assert found.taken == pytest.approx([each / steps for each in taken]) and sum(found.taken) == pytest.approx(1)
    assert found.spent == pytest.approx([each / steps for each in spent[:PARTS]])
    assert found.decided == pytest.approx([over / under if under else 0 for over, under in zip(late, all_, strict=True)])
