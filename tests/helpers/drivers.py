"""Drivers around other ones."""

from collections.abc import Callable
from typing import Any

from dlstep.core import Plan

Agree = Callable[[], None]


class Around:
    """A driver around another one, which does whatever a subclass does not."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def start(self, plan: Plan, owner: int, agree: Agree) -> Any:
        return self.driver.start(plan, owner, agree)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)
