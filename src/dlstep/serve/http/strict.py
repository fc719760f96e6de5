"""The base of models of request bodies."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator


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
