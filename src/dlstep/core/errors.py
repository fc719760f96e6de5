"""Errors between the core and whoever drives it. Bad arguments of a caller are ValueErrors."""


class DlstepError(Exception):
    """Base of the errors below."""


class SamplesMismatch(DlstepError):
    """The samples do not answer the plan, or the plan is not of this state."""


class LineMismatch(DlstepError):
    """A driver was given a plan that relies on another history than its own; `rebuild(state)` gives one it accepts."""


class ReplayDiverged(DlstepError):
    """A replayed trace planned something else than was recorded."""
