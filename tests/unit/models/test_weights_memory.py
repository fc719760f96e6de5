"""A checkpoint of 2 GB loads and decodes in little more memory than its weights take."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from ...helpers.tiny_families import write_checkpoint

SHARDS = 4
SIZES = {
    "vocab_size": 32_768,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 18,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
ALLOWED = 3.2e9
DECODE = """
import resource, sys
from pathlib import Path
from dlstep import LLM, SamplingParams

llm = LLM(sys.argv[1], device="cpu", dtype="bfloat16", max_model_len=64, page_size=8, num_pages=16)
(output,) = llm.generate([list(range(3, 12))], SamplingParams(max_tokens=8, ignore_eos=True))
assert len(output.token_ids) == 8
# On Linux a process inherits the ru_maxrss of the one that started it, but not its own high-water mark.
status = Path("/proc/self/status")
if status.is_file():
    kilobytes = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    print(int(kilobytes) * 1024)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


def write_large(folder: Path) -> int:
    """A folder of the family sdar with random weights; their size in bytes."""
    _, facts = write_checkpoint(folder, "sdar")
    (folder / "config.json").write_text(json.dumps(facts | SIZES))
    (folder / "model.safetensors").unlink()
    with torch.device("meta"):
        network = Qwen3ForCausalLM(Qwen3Config(**SIZES))
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    total = 2 * sum(shape.numel() for shape in shapes.values())
    generator = torch.Generator().manual_seed(0)
    places: dict[str, str] = {}
    drawn: dict[torch.Size, torch.Tensor] = {}  # the weights of all layers are alike: numbers are slow to draw
    names = iter(shapes)
    for number in range(1, SHARDS + 1):
        file, tensors = f"model-{number:05}-of-{SHARDS:05}.safetensors", dict[str, torch.Tensor]()
        while len(places) < len(shapes) and sum(tensor.nbytes for tensor in tensors.values()) < total / SHARDS:
            name = next(names)
            shape = shapes[name]
            if shape not in drawn:
                drawn[shape] = torch.empty(shape, dtype=torch.bfloat16).uniform_(-0.03, 0.03, generator=generator)
            tensors[name] = drawn[shape].clone()
            places[name] = file
        save_file(tensors, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return total


@pytest.mark.stress
@pytest.mark.skipif(sys.platform == "win32", reason="there is no getrusage")
def test_two_gigabytes_load_and_decode_in_little_more(tmp_path: Path, report: Callable[[str], None]) -> None:
    try:
        total = write_large(tmp_path)
        assert total >= 2e9
        done = subprocess.run([sys.executable, "-c", DECODE, str(tmp_path)], capture_output=True, text=True, check=False)
    finally:
        for path in tmp_path.glob("*.safetensors"):
            path.unlink()
    assert done.returncode == 0, done.stderr
    peak = int(done.stdout.split()[-1])
    report(f"{total / 1e9:.2f} GB of bfloat16 in {SHARDS} shards: loaded and decoded in {peak / 1e9:.2f} GB")
    assert peak < ALLOWED
