"""JSON that every parser takes."""

import json
import math
from collections.abc import Mapping


def json_text(value: object) -> str:
    """`value` as JSON, a number that is not finite as null: the standard has no word for it."""
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
