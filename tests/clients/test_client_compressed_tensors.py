"""8-bit checkpoints written by compressed-tensors load as the weights that the library restores, bit for bit."""

import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dlstep.models import load_checkpoint

from ..helpers.tiny_families import write_checkpoint
from .third_party import CLIENT, environment, outside

SCRIPT = Path(__file__).with_name("compressed_checkpoints.py")
SCHEMES = ("FP8_DYNAMIC", "FP8_BLOCK", "FP8", "INT8")

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with all compressed checkpoints. Widths of 320 and 64 leave blocks incomplete."""
    path = tmp_path_factory.mktemp("compressed")
    write_checkpoint(path / "plain", "sdar", hidden_size=256, intermediate_size=320)
    python = environment("compressed_tensors", beside=True) / "python"
    command = [str(python), str(SCRIPT), str(path), *SCHEMES]
    found = subprocess.run(
        command, env=outside(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CLIENT, check=False
    )
    assert found.returncode == 0, found.stdout[-20_000:]
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_weights_are_those_that_the_library_restores(folder, scheme, dtype):
    path = folder / f"{scheme} {dtype}"
    expected = load_file(path / "decompressed.safetensors")
    (path / "decompressed.safetensors").rename(folder / f"{scheme} {dtype}.safetensors")
    codes = load_file(path / "model.safetensors")
    assert sum(name.endswith("weight_scale") for name in codes) == 14, "seven products in each of two layers"
    found = dict(load_checkpoint(str(path), dtype=str(dtype).removeprefix("torch.")).network.named_parameters())
    assert expected.keys() == {name for name in found if name.endswith("weight")}
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name
