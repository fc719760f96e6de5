"""Supervised worker processes: start, deadlines, kill and reason of death. Imports only the standard library."""

from .heartbeat import HEARTBEAT_SECONDS, Clock, Heart, Heartbeat, Pulse, Silence
from .worker import Worker, WorkerDied, disconnect, last_words

__all__ = [
    "HEARTBEAT_SECONDS",
    "Clock",
    "Heart",
    "Heartbeat",
    "Pulse",
    "Silence",
    "Worker",
    "WorkerDied",
    "disconnect",
    "last_words",
]
