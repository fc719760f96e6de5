"""Supervised worker processes: start, deadline, kill, and the reason of their death. Imports the standard library only."""

from .worker import Worker, WorkerDied, disconnect, last_words

__all__ = ["Worker", "WorkerDied", "disconnect", "last_words"]
