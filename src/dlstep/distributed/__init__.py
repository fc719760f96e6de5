"""Ranks: processes that run the same core on shards of one network. Rank 0 sends them every change and compares their plans."""

from ..core import DlstepError


class RankLost(DlstepError):
    """The loss of a rank that was killed, exited or stopped answering. Starting the group again may work."""
