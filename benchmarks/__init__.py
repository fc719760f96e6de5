"""Measurements for developers, run from a checkout (`python -m benchmarks.queues`). Not in the
wheel."""
