"""A rule that unmasks one position after the other. With `deadly`, it ends the process of its engine."""

import os
from dataclasses import dataclass
from typing import final

from dlstep.core import BlockPass, Choice


@final
@dataclass(frozen=True, slots=True)
class DeadlyRule(Choice):
    """A rule for requests that kill their engine."""

    deadly: bool = False
    """Whether the process ends."""

    def chosen(self, block_pass: BlockPass) -> list[int]:
        if self.deadly:
            os._exit(9)
        return [0]


RULE = DeadlyRule
