"""A rule that unmasks one position after the other, and never returns for the block at `endless`."""

from dataclasses import dataclass
from typing import final

from dlstep.core import Block, Choice, SequenceState, SpanSamples


@final
@dataclass(frozen=True, slots=True)
class EndlessRule(Choice):
    """A rule with an endless loop."""

    endless: bool = False
    """Whether it never returns."""

    def chosen(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
        while self.endless:
            pass
        return [begin]


RULE = EndlessRule
