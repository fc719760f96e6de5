"""A rule that unmasks one position after the other, and never returns if an option says so."""

from dataclasses import dataclass
from typing import final

from dlstep.core import BlockPass, Choice, Refusal, Spec


@final
@dataclass(frozen=True, slots=True)
class EndlessRule(Choice):
    """A rule with an endless loop."""

    endless: bool = False
    """Whether `chosen` never returns."""
    endless_check: bool = False
    """Whether `refusal` never returns."""

    def refusal(self, spec: Spec) -> Refusal | None:
        del spec
        while self.endless_check:
            pass
        return None

    def chosen(self, block_pass: BlockPass) -> list[int]:
        while self.endless:
            pass
        return [0]


RULE = EndlessRule
