"""Measure the throughput and latency of `dlstep serve`, and compare it with `LLM.generate` on the same device.

The model has random weights in the shape of a published checkpoint; its head is scaled, and its
threshold chosen, as in `benchmarks.cells`. The server starts twice; between the starts, another
process runs `LLM.generate`. The second server then receives prompts of the same length, all at once,
and streams `settled` text only, then also `drafts`.

`generate_tokens_per_s` is the throughput of `LLM.generate`; `ratio` is `tokens_per_s` divided by it.
Start times are the seconds from the start of the process until `/ready` returns 200 (server) or the
constructor returns (LLM); only the first start has empty caches of compiled code. `first_p50` is the
median time until the first settled text, in milliseconds.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from socket import create_server
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from dlstep import LLM
from dlstep.core import SamplingParams
from dlstep.models.shapes import head_of

from . import entry
from .cells import HEAD_SCALE, THRESHOLDS, TOKENS_PER_FORWARD
from .device import kernel_device
from .shapes import SHAPES, Shape, random_checkpoint

NAME = "sdar-1.7b"
BATCHES, PROMPT, ANSWER = (32, 128), 512, 256
STREAMS = ("settled", "drafts")
STRATEGY = {"block_size": 32, "buffer_size": 4, "add_block_threshold": 0.1, "semi_complete_threshold": 0.9}
PAGE_SIZE, SPARE_PAGES = 32, 4  # pages of a request beyond its prompt and answer
WARM_UP = 8  # requests that are not measured
LONGEST_START = 600.0  # seconds
PYTHON = (sys.executable, "-c")
SERVE = "from dlstep.cli import main; raise SystemExit(main())"
GENERATE = "from benchmarks.serving import run_generate; run_generate()"


def write_folder(folder: Path, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
    """Write a checkpoint with random weights of an SDAR `shape` and a tokenizer with one word per token id."""
    checkpoint = random_checkpoint(shape, device, dtype)
    head: Any = head_of(checkpoint.network)
    with torch.no_grad():
        head.weight.mul_(HEAD_SCALE)
    tensors = {name: parameter.detach().cpu() for name, parameter in checkpoint.network.named_parameters()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    spec = checkpoint.spec
    facts = {
        **shape.facts,
        "model_type": "sdar",
        "architectures": ["SDARForCausalLM"],
        "eos_token_id": spec.eos_ids[0],
        "dlstep": {**STRATEGY, "mask_token_id": spec.mask_id},
    }
    (folder / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    backend = Tokenizer(WordLevel({f"w{number}": number for number in range(spec.vocab_size)}, unk_token="w0"))
    backend.pre_tokenizer = WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    special = {"mask_token": f"w{spec.mask_id}", "eos_token": f"w{spec.eos_ids[0]}"}
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="w0", **special).save_pretrained(folder)


def prompts_of(count: int, length: int, seed: str, vocabulary: int) -> list[str]:
    """Return `count` prompts of `length` random words; prompts of different seeds share no cached pages."""
    random = Random(seed)
    return [" ".join(f"w{number}" for number in random.choices(range(1, vocabulary - 2), k=length)) for _ in range(count)]


def run_generate() -> None:
    """Run `LLM.generate` as described by the JSON on stdin, and write lines of JSON to stdout.

    The first line is written when the LLM is loaded. The second contains the threshold, and each
    further line the tokens per second of one batch.
    """
    job = json.load(sys.stdin)
    llm = LLM(**job["options"])
    print("{}", flush=True)
    limit, vocabulary = job["answer"], job["vocabulary"]

    def generate(prompts: list[str], thresholds: Sequence[float]) -> tuple[list[Any], float]:
        params = [SamplingParams(limit, ignore_eos=True, strategy_options=(("accept_threshold", each),)) for each in thresholds]
        begin = perf_counter()
        outputs = llm.generate(prompts, params, progress=False)
        return outputs, sum(len(output.token_ids) for output in outputs) / (perf_counter() - begin)

    tried, _ = generate(prompts_of(len(THRESHOLDS), job["prompt"], "tried", vocabulary), THRESHOLDS)
    speeds = [len(output.token_ids) / output.nfe for output in tried]
    chosen, _ = min(zip(THRESHOLDS, speeds, strict=True), key=lambda pair: abs(pair[1] - TOKENS_PER_FORWARD))
    print(json.dumps(chosen), flush=True)
    for batch in job["batches"]:
        prompts = prompts_of(batch, job["prompt"], f"settled {batch}", vocabulary)
        print(json.dumps(generate(prompts, [chosen] * batch)[1]), flush=True)


def _measure_generate(job: Mapping[str, Any], env: Mapping[str, str]) -> tuple[float, float, list[float]]:
    """Return the seconds until the LLM was loaded, the threshold, and the tokens per second of each batch."""
    begin = perf_counter()
    with subprocess.Popen((*PYTHON, GENERATE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        lines = [(perf_counter() - begin, json.loads(line)) for line in process.stdout]
    if process.returncode:
        raise ValueError(f"LLM.generate ended with exit code {process.returncode}")
    (loaded_s, _), (_, threshold), *speeds = lines
    return loaded_s, threshold, [speed for _, speed in speeds]


@contextmanager
def serving(options: Mapping[str, object], env: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """Run `dlstep serve`; yield its URL and the seconds until it was ready."""
    with create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    more = ["--port", str(port), "--log_requests", "false", "--max_queue", str(2 * max(BATCHES))]
    url, begin = f"http://127.0.0.1:{port}", perf_counter()
    process = subprocess.Popen((*PYTHON, SERVE, "serve", *flags, *more), env=env, stdout=subprocess.DEVNULL)
    try:
        while not _is_ready(url):
            if process.poll() is not None or perf_counter() - begin > LONGEST_START:
                raise ValueError(f"dlstep serve was not ready after {perf_counter() - begin:.0f} s")
            sleep(0.05)
        yield url, perf_counter() - begin
    finally:
        process.terminate()
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/ready", timeout=5.0) as answer:
            return answer.status == 200
    except (URLError, OSError):  # includes status 503
        return False


@dataclass(slots=True)
class Answer:
    """The result of one request: status, times, and the counts that the server reported."""

    status: int = 0
    began: float = 0.0
    first: float | None = None
    ended: float = 0.0
    tokens: int = 0
    nfe: int = 0


async def ask(url: str, body: Mapping[str, Any]) -> Answer:
    """Send a streaming completion and read it to its end. HTTP/1.0 over a plain socket takes little CPU time."""
    place = urlsplit(url)
    content = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    answer = Answer(began=perf_counter())
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 22)
    try:
        writer.write(head.encode() + content)
        answer.status = int((await reader.readline()).split()[1])
        async for line in reader:
            if line.startswith(b"data: {"):
                _read(answer, json.loads(line[6:]))
    finally:
        writer.close()
    answer.ended = perf_counter()
    return answer


def _read(answer: Answer, event: dict[str, Any]) -> None:
    """Store the data of a stream event."""
    if answer.first is None and any(choice["text"] for choice in event.get("choices", ())):
        answer.first = perf_counter()
    if (dlstep_data := event.get("dlstep")) and "finish_reason" in dlstep_data:
        answer.nfe += dlstep_data["nfe"]
    if usage := event.get("usage"):
        answer.tokens = usage["completion_tokens"]
    if "error" in event:
        answer.status = 500


def row_of(answers: Sequence[Answer]) -> dict[str, float]:
    """Return throughput and latencies of the answers, as the columns of a row."""
    good = [answer for answer in answers if answer.status == 200]
    took = max(answer.ended for answer in answers) - min(answer.began for answer in answers)
    first = [1e3 * (answer.first - answer.began) for answer in good if answer.first is not None]
    tokens, nfe = sum(answer.tokens for answer in good), sum(answer.nfe for answer in good)
    return {
        "failed": len(answers) - len(good),
        "tokens_per_s": tokens / took,
        "first_p50": median(first or [0.0]),
        "tokens_per_forward": tokens / max(nfe, 1),
    }


def _load(url: str, prompts: Sequence[str], answer: int, threshold: float, stream: str) -> dict[str, float]:
    """Send all `prompts` at once and return the results."""
    options = {"accept_threshold": threshold, "stream": stream}
    bodies = [{"prompt": prompt, "max_tokens": answer, "ignore_eos": True, "dlstep": options} for prompt in prompts]

    async def answers() -> list[Answer]:
        return await asyncio.gather(*[ask(url, body) for body in bodies])

    return row_of(asyncio.run(answers()))


def measure_serving(
    name: str = NAME,
    *,
    shape: Shape | None = None,
    device: torch.device | None = None,
    batches: Sequence[int] = BATCHES,
    prompt: int = PROMPT,
    answer: int = ANSWER,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each stream and batch.

    Raises ValueError if there is no CUDA device and no `device` is given.
    """
    shape, device = shape or SHAPES[name], device or kernel_device()
    with TemporaryDirectory() as place:
        folder = Path(place, shape.name)
        folder.mkdir()
        write_folder(folder, shape, device, torch.bfloat16)
        vocabulary = shape.facts["vocab_size"]
        if device.type == "cuda":
            torch.cuda.empty_cache()
        options = {
            "model": str(folder),
            "device": device.type,
            "dtype": "bfloat16",
            "max_model_len": prompt + answer,
            "max_num_reqs": max(batches),
            "page_size": PAGE_SIZE,
            "num_pages": max(batches) * (-(-(prompt + answer) // PAGE_SIZE) + SPARE_PAGES),
        }
        caches = {"TORCHINDUCTOR_CACHE_DIR": "compiled", "TRITON_CACHE_DIR": "triton", "XDG_CACHE_HOME": "cache"}
        env = os.environ | {variable: str(Path(place, part)) for variable, part in caches.items()}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # store bytecode: installed packages have it, but some images lack it
        with serving(options, env) as (_, first_start_s):
            pass
        job = {"options": options, "vocabulary": vocabulary, "prompt": prompt, "answer": answer, "batches": list(batches)}
        llm_start_s, threshold, speeds = _measure_generate(job, env)
        with serving(options, env) as (url, second_start_s):
            _load(url, prompts_of(WARM_UP, prompt, "warm-up", vocabulary), answer, threshold, STREAMS[0])
            for stream in STREAMS:
                for batch, speed in zip(batches, speeds, strict=True):
                    row = _load(url, prompts_of(batch, prompt, f"{stream} {batch}", vocabulary), answer, threshold, stream)
                    yield {
                        "shape": shape.name,
                        "batch": batch,
                        "stream": stream,
                        "accept_threshold": threshold,
                        "generate_tokens_per_s": speed,
                        **row,
                        "ratio": row["tokens_per_s"] / speed,
                        "first_start_s": first_start_s,
                        "second_start_s": second_start_s,
                        "llm_start_s": llm_start_s,
                    }


COLUMNS = ("batch", "stream", "generate_tokens_per_s", "tokens_per_s", "ratio", "first_p50", "second_start_s")

if __name__ == "__main__":
    entry.run(__doc__, measure_serving, COLUMNS, name=(NAME, "An SDAR shape."), batches=(BATCHES, "Requests at a time."))
