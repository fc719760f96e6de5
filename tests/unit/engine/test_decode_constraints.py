"""Forward passes of an `LLM` do not compute what takes time in proportion to the constraint of a new request."""

from dlstep import SamplingParams
from dlstep.core import constraint
from dlstep.driver import tables

from ...helpers.shadow_llm import make_llm


def test_passes_find_new_constraints_prepared(monkeypatch):
    """The caller whose request has a constraint computes it; another caller's pass does not."""
    llm = make_llm()
    subscription = llm._shared.submit((5, 6, 7), SamplingParams(max_tokens=12, regex="[0-9]{3,9}|two"), keeps=True)
    monkeypatch.setattr(constraint, "_bind", None)
    monkeypatch.setattr(tables, "_MaskBits", None)
    while llm._shared.next_update(subscription) is not None:
        pass
    assert subscription.latest.finish_info.reason in ("stop", "length")
