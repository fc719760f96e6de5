"""Strictly valid JSON."""

import json
import math
from collections.abc import Mapping


def json_text(value: object) -> str:
    """Return `value` as JSON, with null for numbers that are not finite, which JSON cannot represent."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case _:
            return value
