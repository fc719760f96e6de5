"""Several processes that run one core and share a network: started, told what changed, and compared before every forward."""

from ..core import DlstepError


class RankLost(DlstepError):
    """A rank was killed, ended by itself or stopped answering: a group that is started again may work."""
