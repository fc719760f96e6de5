"""Supervised worker processes: start, deadline, kill, and the reason of their death. Imports the standard library only."""

from .worker import Worker, WorkerDied, last_words

__all__ = ["Worker", "WorkerDied", "last_words"]
