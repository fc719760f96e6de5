"""How many examples Hypothesis tries of slow properties, and of those that other tests also check."""

from hypothesis import settings


def up_to(count: int) -> settings:
    """At most `count` examples, and at most three in `make test`."""
    most = settings.default.max_examples
    return settings(max_examples=min(count, most if most > 8 else 3))
