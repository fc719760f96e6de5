"""Servers that several tests share."""

from ...helpers.servers import nothing_goes_wrong_unseen

__all__ = ["nothing_goes_wrong_unseen"]
