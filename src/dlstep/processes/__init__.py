"""Supervised worker processes: start, heartbeats, messages, deadlines, kill and reason of death.

Imports only the standard library.
"""

from .child import HEARTBEAT_SECONDS, Heart, Heartbeat, last_words
from .worker import Worker, disconnect, limit_waits, watch

__all__ = [
    "HEARTBEAT_SECONDS",
    "Heart",
    "Heartbeat",
    "Worker",
    "disconnect",
    "last_words",
    "limit_waits",
    "watch",
]
