"""Measurements for developers of dlstep, run from a checkout: `python -m benchmarks.queues`. Not part of the wheel."""
