"""Routes for administrators: new weights reach all engines, memory is freed and restored, and no request is lost."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from dlstep import LLM, SamplingParams, tiny as models
from dlstep.models import updating
from dlstep.processes import Heart
from dlstep.serve.engine_loop import execute_commands

from ....helpers.new_weights import PROMPTS, write_changed
from ....helpers.serving import COMPLETIONS, DeafHost, Served, ThreadHost, bearer, served, shadow_engine
from .conftest import GOOD

UPDATE, SLEEP, WAKE = "/update_weights_from_disk", "/release_memory_occupation", "/resume_memory_occupation"
PAUSE, PROCEED = "/pause_generation", "/continue_generation"
PATHS = (UPDATE, SLEEP, WAKE, PAUSE, PROCEED)

SAMPLED = {"max_tokens": 24, "ignore_eos": True, "temperature": 1.5, "seed": 3}


def loaded(folder):
    return LLM(folder, decoding_strategy="multi_bd", device="cpu", num_threads=1, max_num_reqs=4)


class LoadingHost(ThreadHost):
    """A host that loads the first weights at every start, as a process does."""

    def __init__(self):
        super().__init__(loaded("tiny-bd").engine)

    def run(self, connection):
        execute_commands(loaded("tiny-bd").engine, Heart(connection))


@dataclass
class Case:
    """Two engines behind one server, folders of weights, and what each of them answers."""

    server: Served
    folders: list
    answers: list

    @property
    def replicas(self):
        return self.server.router.replicas

    def post(self, path, status=200, **body):
        return self.server.post(path, key="open", status=status, **body)

    def ask(self, status=200, **options):
        return self.server.post(COMPLETIONS, status=status, prompt=PROMPTS[0], **SAMPLED | options)

    def answer(self):
        return tuple(self.ask(return_token_ids=True)["choices"][0]["token_ids"])

    def all_answer(self, number):
        """Both engines have these weights: eight requests at a time get their answer."""
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(lambda _: self.answer(), range(8))) == {self.answers[number]}

    def refusal(self):
        """The message for a request that no engine can answer."""
        error = self.ask(503)["error"]
        assert error["code"] == "not_ready"
        return error["message"]

    def update(self, number, status=200, **more):
        return self.post(UPDATE, status, model_path=str(self.folders[number]), **more)

    def kill(self, number=0):
        """Kill an engine, and wait until that is noticed."""
        replica = self.replicas[number]
        deaths = replica.deaths
        replica._start.__self__.worker.kill()
        self.server.until(lambda: replica.deaths > deaths)

    def all_ready(self):
        self.server.until(lambda: all(each.phase == "ready" for each in self.replicas))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    old, folder = models.path("tiny-bd"), tmp_path_factory.mktemp("weights")
    folders = [old, *[write_changed(old, folder / str(seed), seed) for seed in (1, 2)]]
    params = SamplingParams(**SAMPLED)
    answers = [loaded(each).generate(PROMPTS[:1], params, progress=False)[0].token_ids for each in folders]
    assert len(set(answers)) == 3
    hosts = [LoadingHost(), LoadingHost()]
    with served(hosts[0]._engine, hosts=hosts, admin_keys=("open",), max_restarts=9) as server:
        yield Case(server, folders, answers)


@pytest.fixture
def case(kept):
    """Both engines on the first weights, awake."""
    kept.all_ready()
    reply = kept.update(0)
    assert reply["success"] and len(reply["results"]) == 2
    return kept


def test_an_engine_that_restarts_gets_the_last_weights(case):
    case.update(1)
    for number in range(2):
        case.kill(number)
        case.all_ready()
    case.all_answer(1)
    (fingerprint,) = {replica.info.first.config.spec.fingerprint for replica in case.replicas}
    assert fingerprint == loaded(case.folders[1]).engine.first.config.spec.fingerprint


@pytest.mark.full
def test_an_engine_that_cannot_load_the_last_weights_again_does_not_answer(case, tmp_path):
    moved = case.folders[1].rename(tmp_path / "moved")
    case.folders[1].symlink_to(moved)
    case.update(1)
    case.folders[1].unlink()
    for number, replica in enumerate(case.replicas):
        case.kill(number)
        case.server.until(lambda replica=replica: replica.phase == "unready" and "failed" in replica.info.problem)
        assert number or case.answer() == case.answers[1], "the other engine has them"
    assert case.refusal()
    with case.server.http() as http:
        ready = http.get("/ready")
    assert ready.status_code == 503 and ready.json()["status"] == "unready"
    moved.rename(case.folders[1])
    case.update(1)
    assert case.answer() == case.answers[1]


def test_an_update_that_all_engines_refuse_changes_nothing(case, tmp_path):
    """Not even for an engine that restarts later."""
    case.update(1)
    broken = write_changed(case.folders[0], tmp_path / "broken", 3)
    (broken / "model.safetensors").write_bytes(b"x" * 40)
    for path in (tmp_path / "none", broken):
        error = case.post(UPDATE, 400, model_path=str(path))["error"]
        assert error["code"] == "invalid_value" and str(path) in error["message"]
        assert error["message"].startswith("2 of 2 engines failed: ")
        case.all_answer(1)
    case.kill()
    case.all_ready()
    case.all_answer(1)


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("failures", [1, 9])
def test_an_engine_that_alone_fails_to_update_tries_again_and_then_refuses(case, monkeypatch, failures, writes):
    """Until an update succeeds, whether it has written tensors or not; the other engine answers with the new weights."""
    work, failing = updating.Weights.update, []

    def update(self, source, begin):
        if not failing:
            failing.extend([self] * failures)
        if self not in failing:
            return work(self, source, begin)
        failing.remove(self)
        if writes:
            begin()
        raise ValueError("the folder is gone")

    monkeypatch.setattr(updating.Weights, "update", update)
    if failures == 1:
        failing.append(None)
        case.update(2)
        case.all_ready()
        case.all_answer(2)
        return
    assert case.update(2, 400)["error"]["message"] == "1 of 2 engines failed: the folder is gone"
    for _ in range(2):
        assert sorted(each.phase for each in case.replicas) == ["ready", "unready"]
        case.all_answer(2)
        case.post(WAKE)
    assert "1 of 2" in case.update(1, 400)["error"]["message"]
    assert case.answer() == case.answers[1]
    monkeypatch.undo()
    case.update(0)
    case.all_ready()
    case.all_answer(0)


@pytest.mark.parametrize("level", [1, pytest.param(2, marks=pytest.mark.full)])
def test_an_engine_that_sleeps_refuses_requests(case, level):
    case.update(1)
    for _ in range(2):
        reply = case.post(SLEEP, level=level)
        assert len(reply["results"]) == 2
        assert all(after <= before for before, after in reply["results"])
        assert WAKE in case.refusal()
    case.kill()
    case.server.until(lambda: case.replicas[0].phase == "unready" and not case.replicas[0].changing)
    case.post(WAKE)
    if level == 2:
        assert case.refusal(), "the weights are gone"
        case.update(1)
    case.all_ready()
    assert case.answer() == case.answers[1]


def test_paused_requests_wait_and_get_new_weights(case):
    with ThreadPoolExecutor(4) as threads:
        running = threads.submit(case.answer)
        case.server.until(lambda: case.server.router.live == 1 or running.done())
        case.post(PAUSE)
        assert running.result() == case.answers[0] and not case.server.router.live
        waiting = [threads.submit(case.answer) for _ in range(3)]
        case.server.until(lambda: case.server.router.live == 3)
        case.update(2)
        assert case.server.router.live == 3
        case.post(PROCEED)
        assert {each.result() for each in waiting} == {case.answers[2]}


def test_waiting_requests_end_when_engines_fall_asleep(case):
    with ThreadPoolExecutor(1) as threads:
        case.post(PAUSE)
        waiting = threads.submit(case.refusal)
        case.server.until(lambda: case.server.router.live == 1)
        case.post(SLEEP)
        assert waiting.result()
        case.post(PROCEED)
        case.post(WAKE)
        assert case.answer() == case.answers[0]


def test_running_requests_can_be_aborted(case):
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(case.ask, max_tokens=90, ignore_eos=True)
        case.server.until(lambda: any(each.nfe for replica in case.replicas for each in replica.sent.values()))
        case.update(1, abort_all_requests=True)
        assert running.result()["choices"][0]["finish_reason"] in ("abort", "length", "stop")


def test_steps_of_old_weights_cannot_be_forked(case):
    fork = f"/v1/requests/{case.ask(dlstep={'stream': 'steps'})['id']}/fork"
    assert case.server.post(fork, seq=1)
    case.update(1)
    assert case.server.post(fork, seq=1, status=404)


def test_an_engine_that_dies_during_an_update_makes_it_when_it_has_restarted():
    deaf = DeafHost(shadow_engine())
    with served(host=deaf, admin_keys=("open",)) as server, ThreadPoolExecutor(1) as one:
        case = Case(server, ["new"], [])
        asked = one.submit(case.update, 0, 503)
        server.until(lambda: bool(server.router.changes))
        deaf.die()
        assert asked.result()["error"]["code"] == "engine_died"
        server.until(lambda: server.router.phase == "unready")
        assert case.refusal(), "a shadow has no weights"
        assert "has no weights" in case.update(0, 400)["error"]["message"]


def test_the_routes_need_their_own_key():
    with served(keys=("user",), admin_keys=("open",)) as server, server.http() as http:
        for path in (*PATHS, "/pause_generation%0A", "/pause_generation%20"):
            for key in ("", "user", "opens"):
                assert server.post(path, key=key, status=401)["error"]["code"] == "invalid_api_key"
        assert http.post(PAUSE, headers=bearer("open")).json()["success"], "it needs no body"
        assert server.post(PROCEED, key="open")
        assert server.post(COMPLETIONS, key="open", status=401), "it is no API key"
        paths = http.get("/openapi.json", headers=bearer("user")).json()["paths"]
        assert all(paths[path]["post"]["security"] for path in PATHS)
    for keys in ((), ("user",)):
        with served(keys=keys) as server:
            for path in PATHS:
                assert server.post(path, key="user", status=404, model_path="x")["error"]["code"] == "path_not_found"
            server.post(PAUSE, status=401 if keys else 404)


def test_fields_are_refused_by_name():
    with served(admin_keys=("open",)) as server:
        for path, body, field, code in (
            (UPDATE, {}, "model_path", "missing"),
            (UPDATE, {"model_path": ""}, "model_path", "out_of_range"),
            (UPDATE, {"model_path": "x", "load_format": "pt"}, "load_format", "unsupported"),
            (UPDATE, {"model_path": "x", "token_step": 1}, "token_step", "unknown_field"),
            (SLEEP, {"tags": ["weights"]}, "tags", "unsupported"),
            (SLEEP, {"level": 3}, "level", "invalid_value"),
            (WAKE, {"level": 1}, "level", "unknown_field"),
            (PAUSE, {"mode": "retract"}, "mode", "unknown_field"),
            (PROCEED, {"x": 1}, "x", "unknown_field"),
        ):
            error = server.post(path, key="open", status=400, **body)["error"]
            assert (error["param"], error["code"]) == (field, code)
        assert server.choice(**GOOD), "nothing has changed"
