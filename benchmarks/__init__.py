"""Measurements for developers, run from a checkout (`python -m benchmarks.host`). Not in the
wheel."""
