"""Spacing: what it leaves of another rule's choice."""

from dlstep.rules.entropy_bound import EntropyBound
from dlstep.rules.quota import Quota
from dlstep.rules.spaced import Spaced


def test_spaced_has_the_statistics_of_its_inner_rule():
    assert Spaced(Quota(schedule="dream")).whole and Spaced(EntropyBound()).sample_spec == EntropyBound().sample_spec
