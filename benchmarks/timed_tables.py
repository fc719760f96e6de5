"""A job of the limited process that `benchmarks.schemas` starts; it imports little, because memory is limited."""

from collections.abc import Sequence
from time import process_time

from dlstep.text.compilation import tables


def json_schema(text: str, pieces: Sequence[bytes], forbidden: Sequence[int]) -> bytes:
    """Return the CPU seconds that a schema takes to compile, and the tables of its automaton."""
    begun = process_time()
    made = tables("json_schema", text, pieces, forbidden)
    return b"%.4f %b" % (process_time() - begun, made)
