"""Decoding rules, one file each, found by module name."""

from ..core import Fields, Json, Rule
from ..core.options import PluginGroup

PLUGINS = PluginGroup("rule", "RULE", __name__, Rule, ("decoding_strategy", "dlstep.strategies"))
own, available, is_known, load, name_of = PLUGINS.own, PLUGINS.available, PLUGINS.is_known, PLUGINS.load, PLUGINS.name_of

HOLDERS = ("rule", "inner")  # options that hold a rule (of strategies, of rules)


def with_values(options: Fields) -> Json:
    """Return options with each rule that is given by name or class replaced by its default instance.

    Args:
        options: Options of a strategy by name.

    Raises:
        ValueError: For an unknown name of a rule.
    """
    named = {name: rule for name, rule in options.items() if name in HOLDERS and isinstance(rule, str | type)}
    return {**options, **{name: PLUGINS.value(rule) for name, rule in named.items()}}
