"""Values of the core as JSON."""

from dlstep.core.trace import from_json, to_json

from ...helpers.naming import Said


def test_what_the_rule_keeps_is_a_value():
    assert from_json(to_json(Said((1, 2)))) == Said((1, 2))
