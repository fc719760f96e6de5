"""Write copies of checkpoint folders with other weights, and adapters; collect the answers of an engine."""

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dlstep import LLM, SamplingParams, tiny

from .any_strategy import model_of
from .files import save_adapter

PROMPTS = ["Max has 53 shells. Later Max buys 39 more.\n", "Max has 53 shells. Later Max buys 3 more.\n"]
PARAMS = [SamplingParams(max_tokens=12, ignore_eos=True), SamplingParams(max_tokens=9, temperature=0.8, seed=3)]
ADAPTED = ("o_proj", "attn_out", "q_proj", "down_proj")


def folder_of(strategy: str) -> Path:
    """Return the folder of the model that tests use for a strategy."""
    name = model_of(strategy)
    return tiny.path(name) if name in tiny.names() else Path(name)


def tensors_in(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a checkpoint by name."""
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def changed(tensors: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return the tensors with added noise that depends on the seed."""
    random = torch.Generator().manual_seed(seed)
    return {name: (its * (1 + 0.2 * torch.randn(its.shape, generator=random))).to(its.dtype) for name, its in tensors.items()}


def write_changed(old: Path, new: Path, seed: int) -> Path:
    """Write a copy of a checkpoint with other weights, in one file."""
    shutil.copytree(old, new, ignore=shutil.ignore_patterns("*.safetensors*"))
    save_file(changed(tensors_in(old), seed), new / "model.safetensors", metadata={"format": "pt"})
    return new


def write_adapter(checkpoint: Path, folder: Path) -> Path:
    """Write a LoRA adapter with random numbers for some layers of a checkpoint."""
    random, tensors = torch.Generator().manual_seed(1), dict[str, Tensor]()
    for name, weight in tensors_in(checkpoint).items():
        module, _, kind = name.rpartition(".")
        if kind == "weight" and module.rpartition(".")[2] in ADAPTED and weight.ndim == 2 and "expert" not in module:
            for part, shape in (("A", (2, weight.shape[1])), ("B", (weight.shape[0], 2))):
                tensors[f"{module}.lora_{part}.weight"] = torch.randn(shape, generator=random) * 0.3
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in tensors})
    save_adapter(folder, tensors, 2, 8, targets)
    return folder


def answers(llm: LLM) -> list[Any]:
    """Return an engine's answers to two calls, a stream, a session and a read; the second call reuses pages of the first."""
    found: list[Any] = []
    params = PARAMS if llm.engine.first.config.spec.mask_id is not None else PARAMS[:1] * 2  # canvases have a temperature
    for _ in range(2):
        outputs = llm.generate(PROMPTS, params, progress=False)
        stream = llm.stream(PROMPTS[0], params[1])
        assert "".join(stream) == stream.output.text
        session = llm.session()
        requests = [session.submit(prompt, params) for prompt, params in zip(PROMPTS, params, strict=True)]
        session.run()
        outputs += [stream.output, *[session.output(request) for request in requests]]
        found += [(each.token_ids, each.probabilities, each.finish_reason, each.nfe, each.error) for each in outputs]
    if llm.state.config.spec.mask_id is not None:
        found += [read.slots for read in llm.read(PROMPTS, ["", ["1", "2"]])]
    return found
