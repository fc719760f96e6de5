"""Base classes for models of request bodies, and JSON inside texts."""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import from_json

LONGEST_REASON = 120  # characters of a parser's message
HALF = "it contains half of a surrogate pair: send the whole character"
# Messages of pydantic's parser, and their meaning.
REASONS = {
    "recursion limit exceeded": "it nests lists or objects too deeply",
    "number out of range": "it contains an integer with more than 4300 digits",
    "unexpected end of hex escape": HALF,
    "lone leading surrogate in hex escape": HALF,
}


class Strict(BaseModel):
    """A model without type conversion (no text becomes a number) and without unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, value: Any) -> Any:
        """Drop all unknown fields but one, because the error names only one."""
        if not isinstance(value, dict) or len(cast("Mapping[str, Any]", value)) <= len(cls.model_fields):
            return value
        fields = cast("Mapping[str, Any]", value)
        unknown = islice((name for name in fields if name not in cls.model_fields), 1)
        return {name: fields[name] for name in (*cls.model_fields, *unknown) if name in fields}


class Lenient(BaseModel):
    """A model of a part of an earlier turn: unknown fields, which clients add to what they received, are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


def why_not_json(message: str) -> str:
    """Return why a text is not valid JSON, from the message of pydantic's parser."""
    reason = message.removeprefix("Invalid JSON: ")
    for text, plain in REASONS.items():
        reason = reason.replace(text, plain)
    return reason[:LONGEST_REASON]


def _decoded(value: Any) -> Any:
    """Return the value of a JSON text, with the limits of a body; anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return from_json(value, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"the text is not valid JSON: {why_not_json(str(error))}") from error


JsonObject = Annotated[dict[str, Any], BeforeValidator(_decoded, json_schema_input_type=dict[str, Any] | str)]
"""A JSON object, or its text. Every text of a client that contains JSON is decoded here."""
