"""Memory of LLMs that nobody holds is free at once, not when garbage is collected: a device may be full before that."""

import gc
import json
import subprocess
import sys
from contextlib import suppress
from itertools import islice
from pkgutil import resolve_name
from weakref import ref

import pytest
import torch

from dlstep import LLM, SamplingParams, models, tiny
from dlstep.driver import TorchDriver
from dlstep.models.compiled import compile_layers
from dlstep.models.layers import install_routers
from dlstep.strategies import own

from ..helpers.any_strategy import model_of
from ..helpers.tiny_families import write_checkpoint

STORY = tiny.problems(1, seed=4)[0].prompt
SHORT = SamplingParams(max_tokens=24)


@pytest.fixture(autouse=True)
def uncollected():
    """No collection of garbage while a test runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def parts(driver):
    """All that a driver has on its device: weights, and pages of KV caches."""
    held = [driver, driver.network.model, *driver._caches]
    return [*map(ref, held), *map(ref, driver.network.model.parameters())]


def stepped(llm):
    """Sessions, one of which goes back and is forked."""
    session, other = llm.session(), llm.session()
    for each in (session, other):
        each.submit(STORY, SHORT)
        each.step()
    session.step()
    session.back()
    session.fork().step()


def failed(llm):
    """A forward that fails, whose error is dropped with its traceback."""

    def fail(*given):
        raise RuntimeError("the device is gone")

    with pytest.MonkeyPatch.context() as patched, suppress(RuntimeError):
        patched.setattr(TorchDriver, "start", fail)
        llm.generate(STORY, SHORT)
        raise AssertionError("nothing failed")


USES = {
    "generate": lambda llm: llm.generate([STORY] * 2, SHORT),
    "stream": lambda llm: list(islice(llm.stream_drafts(STORY, SHORT), 2)),
    "sessions": stepped,
    "failed": failed,
}


def left_of(*options, use=USES["generate"], **more):
    """What is left of an LLM after a use, once nobody holds it."""
    llm = LLM(*options, **more)
    use(llm)
    held = parts(llm.engine.driver)
    assert all(each() is not None for each in held)
    del llm
    return [each() for each in held if each() is not None]


@pytest.mark.parametrize("use", USES)
def test_an_llm_frees_its_memory_when_it_is_dropped(use):
    assert not left_of(use=USES[use])


@pytest.mark.full
@pytest.mark.parametrize("strategy", sorted(own()))
def test_so_does_one_of_every_strategy(strategy):
    assert not left_of(model_of(strategy), decoding_strategy=strategy)


def compiled(llm):
    """Layers compiled, with routers of ours, as on a device."""
    network = llm.engine.driver.network.model
    install_routers(network)
    compile_layers(network, backend="eager")
    llm.generate([(3, 5, 7, 11)], SHORT)


@pytest.mark.full
@pytest.mark.parametrize("family", ["sdar", "llada2", "diffusion_gemma"])
def test_so_does_one_with_compiled_layers(family, tmp_path):
    write_checkpoint(tmp_path, family)
    assert not left_of(str(tmp_path), use=compiled, family=family, max_model_len=64)


class Small:
    """A device with room for so many tensors of one function; it remembers what it gave."""

    def __init__(self, function, room):
        self.function, self.room = function, room
        self.made = []

    def __call__(self, *sizes, **named):
        if str(named.get("device")) != "cpu":
            return self.function(*sizes, **named)
        if len(self.made) == self.room:
            raise torch.OutOfMemoryError("Tried to allocate much")
        tensor = self.function(*sizes, **named)
        self.made.append(ref(tensor))
        return tensor


@pytest.mark.parametrize(
    "function, room, options, said",
    [
        ("dlstep.models.networks.zeros", 2, {}, "num_pages=8192 .* lower num_pages"),
        ("dlstep.models.networks.zeros", 99, {"num_pages": -1, "kv_cache_gib": 1e-6}, "lower max_model_len"),
        ("torch.empty", 5, {}, "the weights in .* take"),
    ],
    ids=["pages", "one request", "weights"],
)
def test_an_error_that_is_kept_keeps_no_memory(function, room, options, said, monkeypatch):
    """A notebook holds the last error with its frames, while its user tries again with fewer pages."""
    made = []
    load = models.load_checkpoint

    def loads(*given, **named):
        found = load(*given, **named)
        made.extend(map(ref, (found.network, *found.network.parameters())))
        return found

    small = Small(resolve_name(function), room)
    monkeypatch.setattr(models, "load_checkpoint", loads)
    monkeypatch.setattr(function, small)
    with pytest.raises(ValueError, match=said) as raised:
        LLM(**options)
    held = [*made, *small.made]
    assert len(held) >= 5
    assert not [each() for each in held if each() is not None], raised


@pytest.mark.full
@pytest.mark.parametrize("family, options", [("sdar", {"dtype": "bfloat16"}), ("llada2", {"quantization": "fp8"})])
def test_loading_takes_at_most_half_more_memory_than_the_weights(family, options, tmp_path):
    """A new process, in which nothing has grown before; what it has allocated is sampled while it loads."""
    large = {
        "hidden_size": 384,
        "intermediate_size": 1536,
        "moe_intermediate_size": 384,
        "num_hidden_layers": 16,
    }
    write_checkpoint(tmp_path, family, **large)
    asked = json.dumps({"model": str(tmp_path), "family": family, "max_model_len": 256} | options)
    command = [sys.executable, "-m", "tests.helpers.loading_memory", asked]
    weights, growth = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert weights > 50e6, "large against what an allocator rounds up"
    assert growth <= 1.5 * weights
