"""Supervised worker processes: start, heartbeats, messages, deadlines, kill and reason of death.

Imports only the standard library.
"""

from .worker import HEARTBEAT_SECONDS, Heart, Heartbeat, Worker, WorkerDied, disconnect, last_words, watch

__all__ = [
    "HEARTBEAT_SECONDS",
    "Heart",
    "Heartbeat",
    "Worker",
    "WorkerDied",
    "disconnect",
    "last_words",
    "watch",
]
