"""The Slurm scripts run as they are, with stand-ins for srun and scontrol that stay on this machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ...helpers.waiting import until

FOLDER = Path(__file__).parents[3] / "deploy" / "slurm"
START = 120.0  # seconds; torch is loaded on a busy machine
# The stand-ins write down how they were called. srun runs the command after its options, as a task of the node would.
SCONTROL = 'echo "scontrol $*" >> "$LOG"; printf "node-a\\nnode-b\\n"'
SRUN = 'echo "srun $*" >> "$LOG"; while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"'
RAY = """
trap 'echo "ray ended" >> "$LOG"; exit 143' TERM
echo "ray $*" >> "$LOG"
case $1 in
    status) [ -e "$LOG.up" ] || { touch "$LOG.up"; exit 1; } ;;
    start) while true; do sleep 0.05; done ;;
esac
"""
BOTH = 'while [ "$(grep -c "^ray start" "$LOG")" -lt 2 ]; do sleep 0.02; done'
DLSTEP = f'{BOTH}; echo "dlstep $*" >> "$LOG"; exit "${{CODE:-0}}"'
SERVING = """
import os, signal, sys, time

def drained(*_):
    print("drained", file=log, flush=True)
    sys.exit()

log = open(os.environ["LOG"], "a")
signal.signal(signal.SIGTERM, drained)
print("dlstep", *sys.argv[1:], file=log, flush=True)
while True:
    time.sleep(0.05)
"""


def environment(folder, **commands):
    """The variables of a job of two nodes, with these commands before all others on the path."""
    for name, text in commands.items():
        path = folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_GPUS_ON_NODE": "4"}
    return {**os.environ, **job, "LOG": str(folder / "log"), "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("code", [0, 1])
def test_a_batch_gets_a_cluster_that_ends_with_it(tmp_path, code):
    variables = environment(tmp_path, scontrol=SCONTROL, srun=SRUN, ray=RAY, dlstep=DLSTEP) | {"CODE": str(code)}
    command = ["bash", str(FOLDER / "batch.sh"), "in put.jsonl", "out.jsonl", "--model", "/model"]
    found = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=START, check=False)
    assert found.returncode == code, found.stderr
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "scontrol show hostnames node-[a-b]"
    assert lines.count("ray ended") == 2, "both nodes end with the batch"
    head, worker = (line for line in lines if line.startswith("srun"))
    assert "--nodelist=node-a ray start --head" in head and "--port=6379" in head
    assert "--nodelist=node-b ray start --address=node-a:6379 --block" in worker
    assert "dlstep batch in put.jsonl out.jsonl --model /model --ray node-a:6379" in lines
    assert lines.count("ray status --address=node-a:6379") == 2, "it waits for the head"


def test_servers_end_with_the_job_and_their_addresses_are_listed_meanwhile(tmp_path):
    (tmp_path / "serving.py").write_text(SERVING)
    serving = f'exec {sys.executable} {tmp_path}/serving.py "$@"'
    variables = environment(tmp_path, scontrol=SCONTROL, srun=SRUN, dlstep=serving)
    with subprocess.Popen(["bash", str(FOLDER / "serve.sh"), "/model"], env=variables, cwd=tmp_path) as job:
        log = tmp_path / "log"
        until(lambda: job.poll() is not None or (log.exists() and "\ndlstep serve" in log.read_text()), START)
        assert (tmp_path / "dlstep-7.txt").read_text() == "http://node-a:8000\nhttp://node-b:8000\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(START) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[-1] == "drained" and not (tmp_path / "dlstep-7.txt").exists()
    assert "dlstep serve /model --host 0.0.0.0 --port 8000 --replicas 4 --log_requests false" in lines
