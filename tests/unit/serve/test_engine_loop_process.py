"""The process of an engine, run in this one. `unit/cli/test_serve.py` starts, kills and ends real ones."""

import gc
from multiprocessing import Pipe

import pytest

from dlstep.engine.config import EngineConfig
from dlstep.serve import engine_loop
from dlstep.serve.messages import EngineFailed

from ...helpers.serving import shadow_engine


@pytest.mark.parametrize("fails", [False, True])
def test_loading_and_serving_traverse_no_loaded_objects(fails, monkeypatch):
    collected = []
    frozen = []

    def load(config):
        collected.append(gc.isenabled())
        if fails:
            raise ValueError("no such folder")
        return shadow_engine()

    def execute(engine, heart):
        collected.append(gc.isenabled())
        frozen.append(gc.get_freeze_count())

    monkeypatch.setattr(engine_loop, "load_engine", load)
    monkeypatch.setattr(engine_loop, "execute_commands", execute)
    ours, theirs = Pipe()
    try:
        engine_loop.run_process(theirs, EngineConfig(device="cpu"), 0)
    finally:
        gc.unfreeze()
    assert gc.isenabled()
    assert collected == ([False] if fails else [False, True])
    assert [count > 10_000 for count in frozen] == ([] if fails else [True])
    messages = [ours.recv() for _ in range(1 + fails)]
    assert isinstance(messages[-1], EngineFailed) == fails
    theirs.close()
