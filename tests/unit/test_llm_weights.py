"""`LLM.update_weights`, `sleep` and `wake_up`: answers come from the newest weights alone, or not at all."""

import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial

import pytest
import torch
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dlstep import LLM, DlstepError, strategies
from dlstep.core import Refused
from dlstep.models import compiled, weights
from dlstep.models.weights import parameter_part

from ..helpers.new_weights import PARAMS, PROMPTS, answers, changed, folder_of, tensors_in, write_adapter, write_changed

NAMES = sorted(strategies.own())
OPTIONS = {
    "fp8": {"quantization": "fp8"},
    "bfloat16": {"dtype": "bfloat16"},
    "compiled": {"compile_layers": True},
    "compiled_fp8": {"compile_layers": True, "quantization": "fp8"},
    "lora": {"lora": True},
    "lora_kept": {"lora": True, "pre_merge_lora": False},
    "lora_kept_compiled": {"lora": True, "pre_merge_lora": False, "compile_layers": True},
    "lora_fp8": {"lora": True, "quantization": "fp8", "compile_layers": True},
}
QUICK = [("multi_bd", "fp8"), ("self_speculation", "lora_kept")]
STRATEGIES = ("multi_bd", "dmax", "wedlm")  # the others are tried by `make full`


@pytest.fixture(autouse=True)
def _compile_eagerly(monkeypatch):
    monkeypatch.setattr(compiled, "compile_layers", partial(compiled.compile_layers, backend="eager"))


def loaded(folder, strategy, lora=None, **options):
    return LLM(folder, decoding_strategy=strategy, device="cpu", num_threads=1, lora_path=lora and str(lora), **options)


@pytest.mark.parametrize(
    "strategy", [pytest.param(name, marks=() if name in STRATEGIES else pytest.mark.full) for name in NAMES]
)
def test_answers_after_an_update_are_those_of_a_new_engine(tmp_path, strategy):
    old = folder_of(strategy)
    new = write_changed(old, tmp_path / "new", 1)
    llm, fresh = loaded(old, strategy), loaded(new, strategy)
    before, expected = answers(llm), answers(fresh)
    assert before != expected
    assert llm.update_weights(tensors_in(new)) == 1
    assert answers(llm) == expected
    assert llm.update_weights(old) == 2
    assert answers(llm) == before
    assert llm.engine.first == loaded(old, strategy).engine.first


def addresses(llm):
    """Where captured graphs read the weights."""
    return {name: its.data_ptr() for name, its in llm.engine.driver.network.model.state_dict().items()}


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        pytest.param(strategy, options, id=f"{strategy}-{name}", marks=() if (strategy, name) in QUICK else pytest.mark.full)
        for strategy in ("multi_bd", "self_speculation", "dmax", "diffusion_gemma")
        for name, options in OPTIONS.items()
        if strategy != "diffusion_gemma" or "lora" not in options  # encoder and decoder share weights
    ],
)
def test_updates_go_through_adapter_quantization_and_compilation(tmp_path, strategy, options):
    old = folder_of(strategy)
    new = write_changed(old, tmp_path / "new", 1)
    lora = write_adapter(old, tmp_path / "lora") if options.get("lora") else None
    llm, fresh = (loaded(folder, strategy, **options | {"lora": lora}) for folder in (old, new))
    answers(llm)
    places = addresses(llm)
    llm.update_weights(tensors_in(new).items())
    assert addresses(llm) == places
    expected = answers(fresh)
    assert answers(llm) == expected
    llm.sleep(level=2)
    llm.update_weights(new)
    llm.wake_up()
    assert answers(llm) == expected
    assert llm.engine.first == fresh.engine.first


def agree(output, expected):
    """Whether tokens are equal, and probabilities up to the rounding of other batches and of prefix hits."""
    return output.token_ids == expected.token_ids and output.probabilities == pytest.approx(expected.probabilities, abs=1e-4)


class Tried:
    """An engine of an embedded model, two sets of weights, and what each of them answers."""

    def __init__(self):
        self.llm = loaded("tiny-bd", "multi_bd")
        old = tensors_in(folder_of("multi_bd"))
        self.weights = [old, changed(old, 1), changed(old, 2)]
        self.answers = [self.answer()]
        for tensors in self.weights[1:]:
            self.llm.update_weights(tensors)
            self.answers.append(self.answer())
        self.llm.update_weights(old)
        assert not any(agree(self.answers[number], self.answers[number - 1]) for number in range(3))

    def answer(self):
        (output,) = self.llm.generate(PROMPTS[0], PARAMS[0], progress=False)
        return output


tried = cache(Tried)


def wrong(tensors, fault, number):
    """The tensors with a fault at one of them."""
    name = sorted(tensors)[number % len(tensors)]
    match fault:
        case "missing":
            return {other: its for other, its in tensors.items() if other != name}
        case "unknown":
            return tensors | {f"{name}s": tensors[name]}
        case "shape":
            return tensors | {name: tensors[name][:-1]}
        case "dtype":
            return tensors | {name: tensors[name].to(torch.int16)}
        case "prefix":
            return {f"module.{other}": its for other, its in tensors.items()}
    raise ValueError(fault)


FAULTS = {
    "missing": "missing: ",
    "unknown": "not used: ",
    "shape": "other shape: ",
    "dtype": "other dtype: ",
    "prefix": "not used: module[.]",
}


@pytest.mark.parametrize(
    "source", [None, 3, b"x", [1, 2], {1: torch.ones(1)}, {"a": 3}, {"a": None}, torch.nn.Linear(1, 1)], ids=str
)
def test_what_holds_no_tensors_is_refused_by_name(source):
    with pytest.raises(Refused, match=r"source: must be a folder, or tensors by name such as a state_dict, got "):
        tried().llm.update_weights(source)


def refused(llm):
    """Everything that would run the network raises the same error."""
    session = llm.session()
    session.submit(PROMPTS[0])
    for ask in (
        lambda: llm.generate(PROMPTS, progress=False),
        lambda: list(llm.stream(PROMPTS[0])),
        session.step,
        session.observe,
        lambda: llm.read(PROMPTS[0], ["", ["1", "2"]]),
        lambda: llm.engine.driver.run(session.plan),
    ):
        with pytest.raises(DlstepError, match=r"update_weights|wake_up"):
            ask()


@contextmanager
def broken_off(moment, error):
    """Raise an error when the tensor of this number is written."""
    seen = []

    def counted(*arguments):
        seen.append(arguments)
        if len(seen) > moment:
            raise error
        return parameter_part(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "parameter_part", counted)
        yield


def test_what_is_no_checkpoint_changes_nothing(tmp_path):
    case = tried()
    case.llm.update_weights(case.weights[0])
    version = case.llm.engine.driver.weights_version
    for source in (tmp_path, tmp_path / "x"):
        with pytest.raises(FileNotFoundError):
            case.llm.update_weights(source)
    with pytest.raises(ValueError, match="level: must be 1 or 2"):
        case.llm.sleep(level=3)
    assert agree(case.answer(), case.answers[0]) and case.llm.engine.driver.weights_version == version


def test_sessions_and_traces_of_other_weights_are_refused():
    case = tried()
    case.llm.update_weights(case.weights[0])
    session, early = case.llm.session(), case.llm.session()
    request = session.submit(PROMPTS[0], PARAMS[0])
    session.step()
    case.llm.update_weights(case.weights[1])
    early.submit(PROMPTS[0], PARAMS[0])
    for ask in (session.step, early.step, session.observe, session.fork(seed=1).step):
        with pytest.raises((DlstepError, ValueError), match="weights"):
            ask()
    with pytest.raises(ValueError, match="other weights"):
        case.llm.resume(session.trace)
    assert session.output(request).weights_version + 1 == case.llm.session()._weights_version
    resumed = case.llm.session()
    request = resumed.submit(PROMPTS[0], PARAMS[0])
    resumed.run()
    assert agree(resumed.output(request), case.answers[1])


class Changes(RuleBasedStateMachine):
    """Updates, sleep and wake_up in any order, with streams that were begun before."""

    @initialize()
    def begin(self):
        self.case, self.streams = tried(), []
        self.case.llm.wake_up()
        self.case.llm.update_weights(self.case.weights[0])
        self.now, self.asleep = 0, False

    @rule(number=st.integers(0, 2))
    def update(self, number):
        self.case.llm.update_weights(self.case.weights[number])
        self.now = number

    @rule(fault=st.sampled_from([*FAULTS]), number=st.integers(0, 40))
    def refuse(self, fault, number):
        with pytest.raises(ValueError, match=f"the given tensors do not fit .*{FAULTS[fault]}"):
            self.case.llm.update_weights(wrong(self.case.weights[1], fault, number))

    @rule(moment=st.integers(0, 30), error=st.sampled_from([KeyboardInterrupt, MemoryError, RuntimeError]))
    def fail(self, moment, error):
        with broken_off(moment, error), pytest.raises(error):
            self.case.llm.update_weights(self.case.weights[1])
        self.now = None

    @rule(level=st.sampled_from([1, 2]))
    def sleep(self, level):
        use = self.case.llm.sleep(level)
        again = self.case.llm.sleep(level)
        assert use.after == again.before == again.after == held(self.case.llm)
        assert self.asleep or use.after < use.before
        self.asleep, self.now = True, None if level == 2 else self.now

    @rule()
    def wake_up(self):
        use = self.case.llm.wake_up()
        assert (use.after > use.before) is self.asleep
        assert use.after == held(self.case.llm)
        self.asleep = False

    @rule()
    def stream(self):
        stream = self.case.llm.stream(PROMPTS[0], PARAMS[0])
        if self.asleep or self.now is None:
            with pytest.raises(DlstepError):
                next(stream)
        else:
            next(stream, None)
            self.streams.append((stream, self.now))

    @rule()
    def finish(self):
        for stream, began in self.streams:
            list(stream)
            assert agree(stream.output, self.case.answers[began])
        self.streams = []

    @invariant()
    def answers_are_of_these_weights_or_none(self):
        if self.asleep or self.now is None:
            refused(self.case.llm)
        else:
            assert agree(self.case.answer(), self.case.answers[self.now])


def held(llm):
    """The bytes of all tensors on the device."""
    driver = llm.engine.driver
    tensors = [*driver.network.model.parameters(), *[its for cache in driver._caches for its in cache.memory.tensors]]
    return sum({its.untyped_storage().data_ptr(): its.untyped_storage().nbytes() for its in tensors}.values())


TestChanges = Changes.TestCase
TestChanges.settings = settings(stateful_step_count=20)


@pytest.mark.parametrize("updates", [4, pytest.param(100, marks=pytest.mark.stress)])
def test_updates_under_load_lose_no_request_and_leave_memory_flat(updates):
    case = tried()
    case.llm.update_weights(case.weights[0])
    start, sizes, stopped = case.llm.engine.driver.weights_version, [], []

    def ask(number):
        found = []
        while not stopped or not found:
            found += case.llm.generate(PROMPTS[0], PARAMS[0], progress=False) if number else [streamed(case.llm)]
        return found

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask, number) for number in range(3)]
        for update in range(1, updates + 1):
            case.llm.update_weights(case.weights[update % 3])
            gc.collect()
            sizes.append(held(case.llm))
        stopped.append(True)
        outputs = [output for each in asking for output in each.result()]
    assert len(set(sizes)) == 1 and len(outputs) >= 3
    for output in outputs:
        assert agree(output, case.answers[(output.weights_version - start) % 3])


def streamed(llm):
    stream = llm.stream(PROMPTS[0], PARAMS[0])
    list(stream)
    return stream.output


@pytest.mark.full
def test_ranks_change_their_weights_together(tmp_path):
    """As new ranks with the weights answer; tensors that do not fit change nothing, and a killed rank is seen."""
    old = folder_of("multi_bd")
    new = write_changed(old, tmp_path / "new", 1)
    llm = loaded(old, "multi_bd", tensor_parallel_size=2)
    before = answers_of_calls(llm)
    assert llm.update_weights(tensors_in(new)) == 1
    updated = answers_of_calls(llm)
    with pytest.raises(ValueError, match=r"do not fit .*missing: model\.norm"):
        llm.update_weights({name: its for name, its in tensors_in(old).items() if name != "model.norm.weight"})
    assert answers_of_calls(llm) == updated[2:] * 2, "pages of the calls before are still used"
    tied = {"lm_head.weight": tensors_in(old)["model.embed_tokens.weight"] + 1}
    with pytest.raises(ValueError, match="to which it is tied"):
        llm.update_weights(tensors_in(old) | tied)
    with pytest.raises(DlstepError, match="update_weights"):
        answers_of_calls(llm)
    assert llm.update_weights(old) == 2 and answers_of_calls(llm) == before
    use = llm.sleep(level=2)
    assert use.after < use.before and llm.update_weights(new) == 3
    with pytest.raises(DlstepError, match="wake_up"):
        answers_of_calls(llm)
    assert llm.wake_up().after == use.before and answers_of_calls(llm) == updated
    os.kill(llm.engine.driver._group.pids[0], signal.SIGKILL)
    for ask in (partial(llm.update_weights, old), partial(answers_of_calls, llm)):
        with pytest.raises(DlstepError, match="rank 1 of 2 was killed by SIGKILL"):
            ask()
    fingerprint = llm.engine.first.config.spec.fingerprint
    del llm, ask
    gc.collect()
    fresh = loaded(new, "multi_bd", tensor_parallel_size=2)
    assert answers_of_calls(fresh) == updated and fresh.engine.first.config.spec.fingerprint == fingerprint
    del fresh  # tracebacks of the errors above may keep this frame: the next test of this process begins a group, too
    gc.collect()


def answers_of_calls(llm):
    """What two calls answer, the second with pages of the first."""
    outputs = [output for _ in range(2) for output in llm.generate(PROMPTS, PARAMS, progress=False)]
    return [(output.token_ids, output.probabilities) for output in outputs]
