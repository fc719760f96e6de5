"""A batch on Ray has the answers of one process, byte for byte, when its driver, actors or nodes are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import IO

import psutil
import pytest

from ...clients.third_party import environment
from ...helpers.killing import size
from ...helpers.waiting import until
from .batches import URL, answers_file, lines_of, request, run, stories, written

pytestmark = pytest.mark.stress

HERE = Path(__file__).parent
COMMAND = "from dlstep.cli import main; raise SystemExit(main())"
COUNT, NODES = 2000, 2
SECONDS = 1200.0  # torch and transformers are loaded on a busy machine


@dataclass
class Cluster:
    """Nodes of one cluster on this machine; each has room for two actors."""

    python: str
    log: IO[str]
    nodes: list[int] = field(default_factory=list)  # process ids of raylets

    def __enter__(self):
        command = [self.python, str(HERE / "ray_cluster.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, bufsize=1
        )
        self.address = self._line()
        for _ in range(NODES):
            self.add_node()
        return self

    def __exit__(self, *error):
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()

    def _line(self):
        line = self._process.stdout.readline().strip()
        assert line, self.output()
        return line

    def output(self):
        """The end of what the cluster and its drivers have printed."""
        return Path(self.log.name).read_text()[-5000:]

    def add_node(self):
        """Start a node."""
        self._process.stdin.write("node\n")
        self.nodes.append(int(self._line()))

    def actors(self, raylet):
        """The actors of a node."""
        return [child for child in psutil.Process(raylet).children() if child.name().startswith("ray::MapWorker")]

    def kill_actor(self, random):
        """Kill an actor with -9; whether there was one."""
        actors = [actor for node in self.nodes for actor in self.actors(node)]
        if actors:
            random.choice(actors).kill()
        return bool(actors)

    def kill_node(self, random):
        """Kill a node that has an actor with -9, without another one in its place."""
        busy = [node for node in self.nodes if self.actors(node)]
        if busy:
            os.kill(node := random.choice(busy), signal.SIGKILL)
            self.nodes.remove(node)
        return bool(busy)

    def batch(self, given, out, options):
        """Start `dlstep batch` on this cluster."""
        line = f"batch {given} {out} --ray {self.address} --max_num_reqs 32 --actors 2 {options}"
        return subprocess.Popen([self.python, "-c", COMMAND, *line.split()], stderr=self.log, text=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster on this Python if it has Ray, else on that of an environment of its own."""
    python = sys.executable if find_spec("ray") else str(environment("ray", beside=True) / "python")
    with (tmp_path_factory.mktemp("cluster") / "log").open("w") as log, Cluster(python, log) as running:
        yield running


def test_a_request_that_kills_its_engine_is_an_error_and_the_others_are_answered(cluster, tmp_path):
    rows = stories(100, max_tokens=16)
    deadly = request("deadly", {"prompt": "Max has 2 shells.", "max_tokens": 4, "dlstep": {"deadly": True}})
    rule, out, plain = f"--rule {HERE}/deadly_rule.py", tmp_path / "out.jsonl", tmp_path / "plain.jsonl"
    line = f"batch {written(tmp_path / 'plain', rows)} {plain} {rule}"
    subprocess.run([sys.executable, "-c", COMMAND, *line.split()], check=True, timeout=SECONDS)
    given = written(tmp_path / "in", [*rows[:50], deadly, *rows[50:]])
    assert cluster.batch(given, out, f"--max_retries 1 {rule}").wait(SECONDS) == 1, cluster.output()
    lines = out.read_text().splitlines()
    response = json.loads(lines.pop(50))["response"]
    assert response["status_code"] == 500 and response["body"]["error"]["code"] == "engine_died"
    assert lines == plain.read_text().splitlines()


def test_killed_drivers_actors_and_nodes_change_no_byte(cluster, tmp_path, report):
    """The driver is killed once, actors ten times, and one of the two nodes for good."""
    begin, random = time.monotonic(), Random(7)
    given, out, whole = written(tmp_path / "in.jsonl", stories(COUNT)), tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    run(lines_of(stories(COUNT)), whole)
    kinds = ["actor"] * 4 + ["driver"] + ["actor"] * 4 + ["node"] + ["actor"] * 2
    moments = [int(whole.stat().st_size * 0.08 * place) + 1 for place in range(len(kinds))]
    driver = cluster.batch(given, out, "--max_retries 20")
    try:
        for moment, kind in zip(moments, kinds, strict=True):
            until(lambda moment=moment: size([answers_file(out)]) >= moment, SECONDS, cluster.output)
            assert driver.poll() is None, cluster.output()
            if kind == "driver":
                driver.kill()
                driver.wait()
                driver = cluster.batch(given, out, "--max_retries 20")
                continue
            kill = cluster.kill_actor if kind == "actor" else cluster.kill_node
            while not kill(random):  # none is up between two kills that follow each other closely
                time.sleep(0.1)
        assert driver.wait(SECONDS) == 0, cluster.output()
    finally:
        driver.kill()
    assert out.read_bytes() == whole.read_bytes()
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())
    report(f"{COUNT} requests on {NODES} nodes, killed {counts}: equal bytes after {time.monotonic() - begin:.0f} s")


def test_a_batch_equals_that_of_one_process_on_a_cluster_of_its_own(cluster, tmp_path):
    rows = [*stories(30), request("wrong", {"prompt": 5}), request("chat", {"prompt": "Max"}, URL.replace("v1", "v2"))]
    given, out, whole = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    run(lines_of(rows), whole)
    line = f"batch {given} {out} --ray local --max_num_reqs 32"
    done = subprocess.run([cluster.python, "-c", COMMAND, *line.split()], check=False, stderr=cluster.log, timeout=SECONDS)
    assert done.returncode == 1
    assert out.read_bytes() == whole.read_bytes()
