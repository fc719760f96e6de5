"""Errors between the core and its callers. Invalid arguments raise ValueError instead."""


class DlstepError(Exception):
    """Base class of all dlstep errors."""


class SamplesMismatch(DlstepError):
    """Samples that do not match their plan, or a plan that was made for another state."""


class CacheMismatch(DlstepError):
    """A plan that needs a KV cache the driver lacks. The plan of `rebuild(state)` needs none."""


class ReplayDiverged(DlstepError):
    """A replayed trace whose plan differs from the recorded one."""
