"""A rule that unmasks one position after the other. With `deadly`, it ends the process of its engine."""

import os
from dataclasses import dataclass
from typing import final

from dlstep.core import Block, Choice, SequenceState, SpanSamples


@final
@dataclass(frozen=True, slots=True)
class DeadlyRule(Choice):
    """A rule for requests that kill their engine."""

    deadly: bool = False
    """Whether the process ends."""

    def chosen(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
        if self.deadly:
            os._exit(9)
        return [begin]


RULE = DeadlyRule
