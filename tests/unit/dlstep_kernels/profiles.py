"""How many examples Hypothesis tries of what is slow, or what other laws hold as well."""

from hypothesis import settings


def up_to(count: int) -> settings:
    """`count` examples where new ones are looked for and for mutants, fewer in `make test`."""
    most = settings.default.max_examples
    return settings(max_examples=min(count, most if most > 8 else 3))
