"""Actors of Ray give the answers of one process, byte for byte, whoever of them is killed: the driver, an actor, or a node."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import IO

import psutil
import pytest

from ...clients.third_party import environment
from ...helpers.killing import size
from .batches import answers_file, lines_of, run, stories, written

HERE = Path(__file__).parent
COMMAND = "from dlstep.cli import main; raise SystemExit(main())"
COUNT, ACTORS = 2000, 2
START = 600.0  # seconds; torch and transformers are loaded on a busy machine
LEFT = 120.0  # seconds in which Ray ends the processes of a driver that has ended
HAS_RAY = find_spec("ray") is not None
WITHOUT = "ray is not installed here; `make stress` runs this in an environment that has it"


@dataclass
class Cluster:
    """Nodes of one cluster on this machine; each has room for all actors."""

    python: str
    log: IO[str]
    nodes: list[int] = field(default_factory=list)  # process ids of raylets

    def __enter__(self) -> "Cluster":
        self._process = subprocess.Popen(
            [self.python, str(HERE / "ray_cluster.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.address = self._line()
        for _ in range(ACTORS):
            self.add_node()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, Path(self.log.name).read_text()[-5000:]
        return line

    def add_node(self) -> None:
        """Start a node."""
        assert self._process.stdin is not None
        self._process.stdin.write("node\n")
        self._process.stdin.flush()
        self.nodes.append(int(self._line()))

    def actors(self, raylet: int) -> list[psutil.Process]:
        """The actors of a node."""
        children = psutil.Process(raylet).children()
        return [child for child in children if child.name().startswith("ray::Answerer")]

    def kill_actor(self, random: Random) -> None:
        """Kill an actor with -9."""
        actors = [actor for node in self.nodes for actor in self.actors(node)]
        if actors:  # none is up between two kills that follow each other closely
            random.choice(actors).kill()

    def stop_actor(self, random: Random) -> None:
        """Stop an actor that works with SIGSTOP: nothing tells its driver."""
        if actors := [actor for node in self.nodes for actor in self.actors(node)]:
            random.choice(actors).suspend()

    def kill_node(self, random: Random) -> None:
        """Kill a node that has an actor with -9, and start another one, on which what it had may go on."""
        busy = [node for node in self.nodes if self.actors(node)]
        if busy:
            node = random.choice(busy)
            self.nodes.remove(node)
            os.kill(node, signal.SIGKILL)
            self.add_node()


@dataclass
class Driver:
    """A `dlstep batch` on a cluster."""

    cluster: Cluster
    given: Path
    out: Path
    restarts: int = 99
    actors: int | None = ACTORS

    def __enter__(self) -> "Driver":
        command = [self.cluster.python, "-c", COMMAND, "batch", str(self.given), str(self.out), "--ray", self.cluster.address]
        options = {"actors": self.actors, "max_num_reqs": 32, "max_restarts": self.restarts, "actor_timeout": 10}
        command += [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
        self.process = subprocess.Popen(command, stderr=self.cluster.log, text=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def until(self, size_of_answers: int) -> bool:
        """Wait until the checkpoint has so many bytes; whether that was before the end."""
        end = time.monotonic() + START
        while size([answers_file(self.out)]) < size_of_answers:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < end, Path(self.cluster.log.name).read_text()[-5000:]
            time.sleep(0.002)
        return True

    def ended(self) -> int:
        """Its exit code."""
        return self.process.wait(3 * START)


@pytest.fixture(scope="module")
def python(request: pytest.FixtureRequest) -> str:
    """A Python that has Ray: this one, or for stress that of an environment of its own."""
    return sys.executable if HAS_RAY else str(environment("ray", beside=True) / "python")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The answers of one process that nothing broke off."""
    out = tmp_path_factory.mktemp("whole") / "out.jsonl"
    run(lines_of(stories(COUNT)), out)
    return out.read_bytes()


@pytest.fixture(scope="module")
def cluster(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two nodes for actors."""
    with (tmp_path_factory.mktemp("cluster") / "log").open("w") as log, Cluster(python, log) as running:
        yield running


def moments(whole: bytes, count: int, random: Random) -> list[int]:
    """Sizes of the checkpoint at which something is killed."""
    return sorted(random.randrange(1, int(0.8 * len(whole))) for _ in range(count))


@pytest.mark.skipif(not HAS_RAY, reason=WITHOUT)
def test_killed_once_each_nothing_is_lost(
    cluster: Cluster, whole: bytes, tmp_path: Path, report: Callable[[str], None]
) -> None:
    check(cluster, whole, tmp_path, report, drivers=1, actors=1, nodes=1)


@pytest.mark.stress
def test_stopped_actors_are_noticed_and_their_requests_move(
    cluster: Cluster, whole: bytes, tmp_path: Path, report: Callable[[str], None]
) -> None:
    check(cluster, whole, tmp_path, report, drivers=0, actors=0, nodes=0, stops=3)


@pytest.mark.stress
def test_actors_that_are_stopped_at_their_start_are_replaced(cluster: Cluster, whole: bytes, tmp_path: Path) -> None:
    given, out, log = written(tmp_path / "in.jsonl", stories(COUNT)), tmp_path / "out.jsonl", Path(cluster.log.name)
    begin, end = log.stat().st_size, time.monotonic() + START
    before = {actor.pid for node in cluster.nodes for actor in cluster.actors(node)}
    with Driver(cluster, given, out) as driver:
        stopped = dict[int, psutil.Process]()
        while len(stopped) < ACTORS:  # all of them, since a single other one may answer everything before the limit
            for actor in (each for node in cluster.nodes for each in cluster.actors(node) if each.pid not in before):
                actor.suspend()
                stopped[actor.pid] = actor
            assert driver.process.poll() is None and time.monotonic() < end
        assert driver.ended() == 0, log.read_text()[-5000:]
        end = time.monotonic() + LEFT
        while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in stopped.values()):
            assert time.monotonic() < end, "one still has its CPU"  # Ray ends it after the driver, not before
            time.sleep(0.2)
    assert out.read_bytes() == whole
    assert re.search(r"actor \d (did not begin within 100 s|sent no heartbeat for 10 s)", log.read_text()[begin:])


@pytest.mark.stress
def test_an_actor_that_dies_for_good_does_not_end_the_batch_and_one_that_does_not_fit_is_waited_for(
    cluster: Cluster, whole: bytes, tmp_path: Path
) -> None:
    """Four actors fit into the cluster. Of five, one waits; without restarts each death leaves one fewer."""
    given, out, log = written(tmp_path / "in.jsonl", stories(COUNT)), tmp_path / "out.jsonl", Path(cluster.log.name)
    begin = log.stat().st_size
    with Driver(cluster, given, out, restarts=0, actors=5) as driver:
        assert driver.until(1)
        for _ in range(2):
            cluster.kill_actor(Random(5))
        assert driver.ended() == 0, log.read_text()[-5000:]
    assert out.read_bytes() == whole
    output = log.read_text()[begin:]
    assert re.search(r"waiting for \d of 5 actors: each needs 1 CPU on one node, and the cluster has \d CPU free", output)
    assert 1 <= output.count("died, or its node did: The actor died") <= 2 and "it is not replaced" in output


@pytest.mark.stress
def test_when_every_actor_is_gone_the_batch_says_so_and_goes_on_later(cluster: Cluster, whole: bytes, tmp_path: Path) -> None:
    given, out, log = written(tmp_path / "in.jsonl", stories(COUNT)), tmp_path / "out.jsonl", Path(cluster.log.name)
    with Driver(cluster, given, out, restarts=0, actors=1) as driver:
        assert driver.until(len(whole) // 10)
        cluster.kill_actor(Random(5))
        assert driver.ended() == 2
    assert "every actor died more than 0 times (--max_restarts)" in log.read_text()
    with Driver(cluster, given, out) as driver:
        assert driver.ended() == 0
    assert out.read_bytes() == whole


@pytest.mark.stress
@pytest.mark.parametrize(("drivers", "actors", "nodes"), [(30, 0, 0), (0, 30, 0), (0, 0, 30)])
def test_killed_thirty_times_nothing_is_lost(
    cluster: Cluster, whole: bytes, tmp_path: Path, report: Callable[[str], None], drivers: int, actors: int, nodes: int
) -> None:
    check(cluster, whole, tmp_path, report, drivers=drivers, actors=actors, nodes=nodes)


@pytest.mark.stress
def test_actors_join_with_the_nodes_of_the_cluster(cluster: Cluster, whole: bytes, tmp_path: Path) -> None:
    """Without --actors, each node gets one, those that join later as well."""
    given, out, log = written(tmp_path / "in.jsonl", stories(COUNT)), tmp_path / "out.jsonl", Path(cluster.log.name)
    begin = log.stat().st_size
    with Driver(cluster, given, out, actors=None) as driver:
        assert driver.until(1)
        cluster.add_node()
        assert driver.ended() == 0, log.read_text()[-5000:]
    assert out.read_bytes() == whole
    assert "the cluster has room for 1 more actors" in log.read_text()[begin:]


def check(
    cluster: Cluster,
    whole: bytes,
    folder: Path,
    report: Callable[[str], None],
    *,
    drivers: int,
    actors: int,
    nodes: int,
    stops: int = 0,
) -> None:
    """Kill, or stop, so many at random moments; the answers are those of an unbroken run."""
    begin, random = time.monotonic(), Random(drivers + 100 * actors)
    given, out = written(folder / "in.jsonl", stories(COUNT)), folder / "out.jsonl"
    kinds = ["driver"] * drivers + ["actor"] * actors + ["node"] * nodes + ["stopped actor"] * stops
    faults = {"actor": cluster.kill_actor, "node": cluster.kill_node, "stopped actor": cluster.stop_actor}
    random.shuffle(kinds)
    plan = list(zip(moments(whole, len(kinds), random), kinds, strict=True))
    killed = dict.fromkeys(kinds, 0)
    while plan:
        with Driver(cluster, given, out) as driver:
            while plan and driver.until(plan[0][0]):
                kind = plan.pop(0)[1]
                killed[kind] += 1
                if kind == "driver":
                    driver.process.kill()
                    driver.process.wait()
                    break
                faults[kind](random)
            else:
                assert driver.ended() == 0, Path(cluster.log.name).read_text()[-5000:]
                break
    else:
        with Driver(cluster, given, out) as driver:
            assert driver.ended() == 0, Path(cluster.log.name).read_text()[-5000:]
    assert out.read_bytes() == whole and not plan
    output = ", ".join(f"{count} {kind}" for kind, count in killed.items())
    report(f"{COUNT} requests on {ACTORS} actors, killed {output}: equal bytes after {time.monotonic() - begin:.0f} s")
