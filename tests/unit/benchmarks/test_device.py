"""The profile of a decode."""

import json

from benchmarks.device import profiled
from dlstep import LLM, SamplingParams
from dlstep.driver.profile import REGION


def test_a_profile_names_the_parts_of_a_decode(tmp_path):
    path, llm = tmp_path / "trace.json", LLM("tiny-bd", device="cpu")
    with profiled(path):
        llm.generate("Max has 5 eggs.", SamplingParams(max_tokens=8), progress=False)
    named = {event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]}
    assert {REGION + part for part in ("start", "follow", "gather", "lower", "forward", "sample", "wait", "unpack")} <= named
    assert any("scaled_dot_product" in name for name in named)
