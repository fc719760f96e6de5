"""Hypothesis profiles, and the marker for tests that need a device."""

import os
from pathlib import Path

# Before anything imports transformers, which draws bars while it loads weights.
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# Before torch loads: on a busy machine, threads that wait for one another make small matrices many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Before anything loads triton: where there is no NVIDIA device, its interpreter runs the kernels.
if not any(map(Path.exists, (Path("/dev/nvidiactl"), Path("/dev/dxg")))):
    os.environ.setdefault("TRITON_INTERPRET", "1")

from hypothesis import HealthCheck, Phase, settings

# No deadline: a busy machine is no error. `derandomize` makes a run in CI say the same thing every time.
settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
# No shrinking and no shared examples: a mutant is caught or not, how small the example is does not matter.
settings.register_profile(
    "mutants",
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("night", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))
