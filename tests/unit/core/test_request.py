"""Options of a strategy that a request brings."""

import pytest

from dlstep.core import SamplingParams


@pytest.mark.parametrize("odd", [("a",), (1.5,), (True,), ((1,),), (1 << 70,), {1: 2}, {4}, b"12", (None,)])
def test_other_lists_are_refused(odd: object) -> None:
    with pytest.raises(ValueError, match=r"strategy_options\['delimiters'\] must be .* or a list of whole numbers, got"):
        SamplingParams(strategy_options={"delimiters": odd})  # type: ignore[arg-type]
