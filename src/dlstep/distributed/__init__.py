"""Ranks: processes that run the same core on shards of one network, coordinated by rank 0."""

from ..core import DlstepError


class RankLost(DlstepError):
    """The loss of a rank that was killed, exited or stopped answering. A restart may help."""
