"""What an LLM without options chooses on this machine: dtype, KV cache, time of a forward pass and memory.

A checkpoint with random weights is loaded without options and, on a CPU, with two values of dtype for
comparison, each in its own process. On a CPU, memory is what belongs to the process and to no file,
beyond that of an embedded model; on CUDA it is what the device has in use.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter
from typing import Any

import torch

from dlstep import LLM
from dlstep.core import SamplingParams

from . import entry
from .serving import prompts_of, write_folder
from .shapes import SHAPES, Shape

LARGE = SHAPES["sdar-1.7b"]
SMALL = replace(LARGE, name="sdar-0.6b", facts={**LARGE.facts, "hidden_size": 1024, "intermediate_size": 3072})
GIB = 1 << 30


def used() -> int:
    """Return the bytes in use: of the device, or of this process without mapped files."""
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return total - free
    (kib,) = re.findall(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kib) << 10


def run_one() -> None:
    """Load and decode as described by the JSON on stdin, and print a row as JSON."""
    job = json.load(sys.stdin)
    LLM()  # imports what loading imports
    seen, running, ended = [used()], [0], Event()

    def watch() -> None:
        while not ended.wait(0.005):
            seen.append(used())

    watching = Thread(target=watch)
    watching.start()
    llm = LLM(job["folder"], **job["options"])
    params = SamplingParams(job["answer"], ignore_eos=True)
    times: list[float] = []
    for seed in ("warm-up", "measured"):
        prompts, before = prompts_of(job["requests"], job["prompt"], seed, job["vocabulary"]), llm.state.step
        begin = perf_counter()
        llm.generate(prompts, params, progress=False, log=lambda _: running.append(len(llm.state.running)))
        times.append((perf_counter() - begin) / (llm.state.step - before))
    ended.set()
    watching.join()
    config = llm.state.config
    row = {
        "choices": llm.engine.choices,
        "num_pages": config.num_pages,
        "positions": config.num_pages * config.page_size,
        "most_running": max(running),
        "ms_per_pass": 1e3 * times[-1],
        "memory_gib": (max(seen) - (0 if torch.cuda.is_available() else seen[0])) / GIB,
    }
    print(json.dumps(row))


def measure(shape: str, requests: int, prompt: int, answer: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each choice of options, the one without options last; ratios are to the first row."""
    own: Shape = SMALL if shape == SMALL.name else SHAPES[shape]
    with TemporaryDirectory() as place:
        folder = Path(place, own.name)
        folder.mkdir()
        write_folder(folder, own, torch.device("cuda" if torch.cuda.is_available() else "cpu"), torch.bfloat16)
        torch.cuda.empty_cache()
        facts = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 32768}  # as in SDAR's files
        facts["dlstep"]["buffer_size"] = 1  # one block in flight, as the authors decode
        (folder / "config.json").write_text(json.dumps(facts), encoding="utf-8")
        size = (folder / "model.safetensors").stat().st_size
        load = {"requests": requests, "prompt": prompt, "answer": answer, "vocabulary": own.facts["vocab_size"]}
        rows: list[dict[str, Any]] = []
        for options in ({},) if torch.cuda.is_available() else ({"dtype": "bfloat16"}, {"dtype": "float32"}, {}):
            job = json.dumps({"folder": str(folder), "options": options, **load})
            code = "from benchmarks.defaults import run_one; run_one()"
            done = subprocess.run((sys.executable, "-c", code), input=job, stdout=subprocess.PIPE, text=True, check=True)
            row = json.loads(done.stdout.splitlines()[-1])
            ratios = {"memory_to_file": row["memory_gib"] * GIB / size}
            rows.append({"shape": shape, "options": str(options), **load, **row, **ratios})
            yield rows[-1] | {"time_to_bfloat16": row["ms_per_pass"] / rows[0]["ms_per_pass"]}


COLUMNS = ("options", "positions", "most_running", "ms_per_pass", "time_to_bfloat16", "memory_gib", "memory_to_file")

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        COLUMNS,
        shape=(SMALL.name, f"{SMALL.name} or an SDAR shape of benchmarks.shapes."),
        requests=(1, "Requests at a time."),
        prompt=(64, "Tokens of a prompt."),
        answer=(32, "Tokens of an answer."),
    )
