"""Expected refusals: their field and their code, whatever their wording is."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dlstep.core import Code, Refused


@contextmanager
def refused(field: str, code: Code) -> Iterator[None]:
    """The block is refused because of this field, with this code and a message of one line."""
    with pytest.raises(Refused) as caught:
        yield
    refusal = caught.value.refusal
    assert (refusal.field, refusal.code) == (field, code), refusal
    assert 10 < len(refusal.message) < 600 and "\n" not in refusal.message, refusal
