"""End-to-end tokens per second compared with LMDeploy, with the same random weights and confidence threshold.

`--lmdeploy` is a folder with LMDeploy's sources, whose requirements must be installed; they are not part of this
repository. Each engine runs in a separate process. A load is `requests x prompt x new tokens x requests at a time`, with
new random prompts in each run. The first run warms up; then enough runs for 64 requests are timed. `ratio` is relative to
LMDeploy's tokens per second. The thresholds give about 3 tokens per pass; one pass per block only stores the block. With
random weights, rounding changes which tokens exceed the threshold. With `--threshold 1`, both engines unmask one token per
pass: equal work. "dlstep in turn" runs without passes ahead.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import MagicMock

import torch
from huggingface_hub import save_torch_state_dict
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from dlstep.engine.devices import find_device

from . import entry
from .shapes import SHAPES, Shape, random_checkpoint, shortened

MASK, EOS = 151669, 151643
THRESHOLDS = {"sdar-8b": 0.00106, "sdar-1.7b": 0.00028}
LOADS = ("1x512x256x1", "8x512x256x8", "96x512x256x32", "64x4096x256x32")
BLOCK, MAX_LENGTH, AT_ONCE, ROWS, MANY = 32, 8192, 32, 8192, 64
ENGINES = {"dlstep": {}, "dlstep fp8": {"quantization": "fp8"}, "dlstep in turn": {"ahead": False}}
COLUMNS = ("shape", "load", "engine", "seconds", "tokens_per_s", "ratio", "tokens_per_pass")

Run = Callable[[list[list[int]], int, int], tuple[int, int]]  # prompts, new tokens, requests at a time; tokens and passes


def write_folder(shape: Shape, folder: Path) -> None:
    """Write a checkpoint of a shape of SDAR with random weights, which both engines can load."""
    torch.manual_seed(1234)
    network = random_checkpoint(shape, torch.device(find_device(None)), torch.bfloat16).network
    state = {name: weight.cpu() for name, weight in network.state_dict().items()}
    save_torch_state_dict(state, folder, max_shard_size="2GB")
    special = {"mask_token_id": MASK, "eos_token_id": EOS, "bos_token_id": EOS, "pad_token_id": EOS}
    facts = {"architectures": ["SDARForCausalLM"], "model_type": "sdar", "torch_dtype": "bfloat16", "block_size": BLOCK}
    lmdeploy = {"auto_map": {"AutoConfig": "configuration_sdar.SDARConfig"}}
    (folder / "config.json").write_text(json.dumps({**facts, **special, **lmdeploy, **shape.facts}))
    (folder / "configuration_sdar.py").write_text(
        'from transformers import Qwen3Config\n\n\nclass SDARConfig(Qwen3Config):\n    model_type = "sdar"\n'
    )
    vocabulary = {f"t{number}": number for number in range(shape.facts["vocab_size"])}
    for text, number in (("<|MASK|>", MASK), ("<|endoftext|>", EOS)):
        del vocabulary[f"t{number}"]
        vocabulary[text] = number
    backend = Tokenizer(WordLevel(vocabulary, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>").save_pretrained(folder)


def dlstep_run(folder: str, threshold: float, options: dict[str, Any]) -> Run:
    """Return a function that runs dlstep. Without `ahead`, no pass starts ahead."""
    from dlstep import LLM, SamplingParams
    from dlstep.driver import TorchDriver

    ahead = options.pop("ahead", True)
    llm = LLM(
        folder,
        decoding_strategy="multi_bd",
        block_size=BLOCK,
        buffer_size=1,
        accept_threshold=threshold,
        max_model_len=MAX_LENGTH,
        max_num_reqs=AT_ONCE,
        max_num_batched_tokens=ROWS,
        **options,
    )
    driver = llm.engine.driver
    assert isinstance(driver, TorchDriver)
    driver.starts_ahead &= ahead

    def run(prompts: list[list[int]], new_tokens: int, at_once: int) -> tuple[int, int]:
        params = SamplingParams(max_tokens=new_tokens, ignore_eos=True, temperature=0.0)
        outputs = llm.generate(prompts, params, progress=False)
        return sum(len(output.token_ids) for output in outputs), sum(output.nfe for output in outputs)

    return run


def lmdeploy_run(folder: str, threshold: float) -> Run:
    """Return a function that runs LMDeploy."""
    sys.modules["xgrammar"] = MagicMock()  # for guided decoding, which is not measured
    from lmdeploy.messages import GenerationConfig, PytorchEngineConfig  # pyright: ignore[reportMissingImports]
    from lmdeploy.pytorch.engine import Engine  # pyright: ignore[reportMissingImports]
    from lmdeploy.pytorch.strategies.dllm.unmasking import UnmaskingProcessor  # pyright: ignore[reportMissingImports]

    passes, unmask = [0], UnmaskingProcessor.__call__

    def counted(self: Any, logits: Any, ids: Any, *others: Any) -> Any:
        passes[0] += ids.shape[0] // BLOCK
        return unmask(self, logits, ids, *others)

    UnmaskingProcessor.__call__ = counted
    config = PytorchEngineConfig(
        dtype="bfloat16",
        max_batch_size=AT_ONCE,
        session_len=MAX_LENGTH,
        dllm_block_length=BLOCK,
        dllm_unmasking_strategy="low_confidence_dynamic",
        dllm_confidence_threshold=threshold,
        distributed_executor_backend="uni",
    )
    engine = Engine.from_pretrained(folder, engine_config=config, trust_remote_code=True)
    loop, sessions = asyncio.new_event_loop(), iter(range(1, sys.maxsize))

    async def answer(prompt: list[int], generation: Any, free: asyncio.Semaphore) -> int:
        async with free:
            instance, session = engine.create_instance(), next(sessions)
            pieces = instance.async_stream_infer(session, input_ids=prompt, gen_config=generation, stream_output=True)
            tokens = sum([len(piece.token_ids) async for piece in pieces])
            await instance.async_end(session)
            return tokens

    async def answers(prompts: list[list[int]], new_tokens: int, at_once: int) -> int:
        generation = GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True, do_sample=False)
        free = asyncio.Semaphore(at_once)
        return sum(await asyncio.gather(*[answer(prompt, generation, free) for prompt in prompts]))

    def run(prompts: list[list[int]], new_tokens: int, at_once: int) -> tuple[int, int]:
        before = passes[0]
        return loop.run_until_complete(answers(prompts, new_tokens, at_once)), passes[0] - before

    return run


def timed(run: Run, load: str, seed: int) -> dict[str, Any]:
    """Return the figures of all runs after the first, which warms up."""
    requests, length, new_tokens, at_once = map(int, load.split("x"))
    seconds = tokens = passes = 0
    for number in range(1 + ceil(MANY / requests)):
        random = Random(f"{load} {seed} {number}")
        prompts = [random.choices(range(151000), k=length) for _ in range(requests)]
        start = perf_counter()
        counts = run(prompts, new_tokens, at_once)
        if number:
            seconds += perf_counter() - start
            tokens, passes = tokens + counts[0], passes + counts[1]
    return {"load": load, "seconds": seconds, "tokens_per_s": round(tokens / seconds), "tokens_per_pass": tokens / passes}


def of_engine(engine: str, folder: str, threshold: float, loads: Sequence[str], lmdeploy: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one engine, which runs in a new process."""
    command = [sys.executable, "-m", "benchmarks.beside_lmdeploy", "--child", engine, folder, str(threshold), *loads]
    paths = os.pathsep.join(filter(None, [lmdeploy, os.environ.get("PYTHONPATH", ""), os.getcwd()]))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith('{"load"'):
                yield {"engine": engine, **json.loads(line)}
    if child.returncode:
        print(f"{engine} ended with {child.returncode}", file=sys.stderr)


def child(arguments: Sequence[str]) -> None:
    """Measure one engine and print a JSON object for each load."""
    engine, folder, threshold, *loads = arguments
    run = dlstep_run(folder, float(threshold), ENGINES[engine]) if engine in ENGINES else lmdeploy_run(folder, float(threshold))
    for load in loads:
        print(json.dumps(timed(run, load, 0)), flush=True)
    os._exit(0)  # LMDeploy's threads would keep the process alive


def measure(
    lmdeploy: str, shapes: Sequence[str], engines: Sequence[str], loads: Sequence[str], threshold: float, layers: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each shape, load and engine."""
    for name in shapes:
        with TemporaryDirectory(prefix="dlstep-") as folder:
            write_folder(shortened(SHAPES[name], layers), Path(folder))
            torch.cuda.empty_cache()
            peer: dict[str, int] = {}
            for engine in engines:
                for row in of_engine(engine, folder, threshold or THRESHOLDS[name], loads, lmdeploy):
                    if engine == "LMDeploy":
                        peer[row["load"]] = row["tokens_per_s"]
                    known = peer.get(row["load"])
                    yield {"shape": name, **row, "ratio": row["tokens_per_s"] / known if known else None}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
    else:
        entry.run(
            __doc__,
            measure,
            COLUMNS,
            lmdeploy=("", "Folder with LMDeploy's sources."),
            shapes=(tuple(THRESHOLDS), "Shapes."),
            engines=(("LMDeploy", "dlstep", "dlstep fp8"), f"Engines: LMDeploy, {', '.join(ENGINES)}."),
            loads=(LOADS, "Loads."),
            threshold=(0.0, "Threshold; 0: one for about 3 tokens per pass."),
            layers=(0, "Only so many layers; 0: all."),
        )
