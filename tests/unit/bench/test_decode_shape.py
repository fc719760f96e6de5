"""Decoding of random weights in the shapes of checkpoints, shrunk: the script and the rows."""

import json
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from benchmarks import tune_kernels
from dlstep.bench.ceilings import Ceilings
from dlstep.bench.decode_shape import DecodeLoad, DecodeRow, measure_shape
from dlstep.bench.shapes import SHAPES, Shape, random_checkpoint
from dlstep.cli import main

CPU, FP32 = torch.device("cpu"), torch.float32
CEILINGS = Ceilings(1e10, 1e11)
SMALLER = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 300,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "sliding_window": 16,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "top_k_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 32,
}


def shrunk(name: str) -> Shape:
    """A shape whose sizes are small, everything else being as it is."""
    shape = SHAPES[name]
    facts, options = deepcopy(dict(shape.facts)), dict(shape.options)
    part = facts.get("text_config", facts)
    part.update({fact: size for fact, size in SMALLER.items() if fact in part})
    if "layer_types" not in part and "text_config" in facts:
        part["layer_types"] = ["sliding_attention", "full_attention"]
    if "canvas_length" in facts:
        facts["canvas_length"] = options["canvas_length"] = 16
    return replace(shape, facts=facts, options=options)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_takes_what_the_script_says(name: str) -> None:
    load = DecodeLoad(batch=2, context=96, tokens_per_forward=2.5, steps=16)
    (row,) = measure_shape(shrunk(name), [load], device=CPU, dtype=FP32, ceilings=CEILINGS)
    # A canvas of 16 has six forwards, and one more that encodes it.
    assert row.tokens_per_step == pytest.approx(16 / 7 if name == "diffusion-gemma-26b" else 2.5, abs=0.16)
    assert row.batch == 2
    assert row.rows > 2
    assert 0 < row.host_us < row.step_us
    assert row.ratio == row.step_us / row.roofline_us
    assert row.device_us is row.queued_us is row.host_share is None


def test_a_forward_can_be_queued_many_times() -> None:
    shape = shrunk("sdar-8b")
    checkpoint = random_checkpoint(shape, torch.device("cpu"), torch.float32)
    decode = DecodeRow(checkpoint, shape.strategy(2.5), DecodeLoad(1, context=64, steps=2), enforce_eager=True)
    decode.prefill()
    begin = time.perf_counter()
    queued_us = decode.queued_us(3)
    assert 0 < 3 * queued_us < 1e6 * (time.perf_counter() - begin)


def test_the_script_takes_at_least_one_token() -> None:
    with pytest.raises(ValueError, match=r"at least 1, because each forward pass unmasks one, got 0\.5"):
        list(measure_shape(shrunk("sdar-8b"), [DecodeLoad(1, 40, 0.5)], device=CPU, dtype=FP32, ceilings=CEILINGS))


def test_the_table_of_launch_parameters_is_written_as_it_stands(tmp_path) -> None:
    text = tune_kernels.table_path().read_text(encoding="utf-8")
    assert tune_kernels.written(json.loads(text)) == text
    target = tmp_path / "launch.json"
    kept = tune_kernels.Tuned("store_kv", "sm_90", "", 2.0, 2.0, None)
    tune_kernels.write(
        [kept, replace(kept, key="sm_100", us=1.0, parameters={"num_warps": 8})], tune_kernels.table_path(), target
    )
    entries = json.loads(target.read_text(encoding="utf-8"))["store_kv"]
    assert entries["sm_100"] == {"num_warps": 8}
    assert "sm_90" not in entries


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "sdar-1.7b", shrunk("sdar-1.7b"))
    picture = tmp_path / "steps.png"
    arguments = ["bench", "decode", "--shape", "sdar-1.7b", "--device", "cpu", "--contexts", "[64,96]", "--batches", "[1,2]"]
    assert main([*arguments, "--layers", "1", "--tokens-per-forward", "3", "--plot", str(picture), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["context"], row["batch"]) for row in rows] == [(64, 1), (64, 2), (96, 1), (96, 2)]
    assert rows[0]["tokens_per_step"] == pytest.approx(3.0, abs=0.1)
    assert picture.stat().st_size > 1000
    assert main(["bench", "decode", "--shape", "nothing"]) == 2
    assert "--shape must be one of" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_kernels_need_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels"]) == 2
    assert "kernels are measured on a CUDA device" in capsys.readouterr().err
    with pytest.raises(ValueError, match="kernels are measured on a CUDA device"):
        next(tune_kernels.tune())
