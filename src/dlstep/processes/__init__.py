"""Supervised worker processes: start, deadline, kill, and the reason of their death. Imports the standard library only."""

from .heartbeat import HEARTBEAT_SECONDS, Clock, Heart, Pulse
from .worker import Worker, WorkerDied, disconnect, last_words

__all__ = ["HEARTBEAT_SECONDS", "Clock", "Heart", "Pulse", "Worker", "WorkerDied", "disconnect", "last_words"]
