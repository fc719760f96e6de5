"""Collectives of a step under tensor parallelism."""

from typing import Any

import pytest
import torch

from dlstep.bench.shapes import SHAPES, random_checkpoint
from dlstep.cli import main
from dlstep.simulate.collectives import measured_us, tensor_parallel


@pytest.mark.parametrize("name", ["sdar-1.7b", "sdar-8b", "dream-7b"])
def test_bytes_of_a_step_are_those_of_the_network(name: str) -> None:
    network: Any = random_checkpoint(SHAPES[name], torch.device("meta"), torch.bfloat16).network
    count = sum(parameter.numel() for parameter in network.parameters())
    embeddings, head = network.get_input_embeddings().weight, network.get_output_embeddings().weight
    read = count - (0 if head is embeddings else embeddings.numel())
    assert tensor_parallel(SHAPES[name], 1, 1).weights_gib == pytest.approx(2 * read / 2**30, rel=1e-3)


def test_collectives_of_a_step() -> None:
    step = tensor_parallel(SHAPES["sdar-8b"], 2, 1040)
    assert step.all_reduces == 72 and step.all_reduce_us == 48.6 and step.step_us == pytest.approx(72 * 48.6)
    assert step.message_mib == 8.125 and step.sent_mib == pytest.approx(72 * 8.125)
    assert step.kv_kib_per_token == 2 * 2 * 36 * 4 * 128 / 1024
    assert tensor_parallel(SHAPES["sdar-8b"], 1, 1040).step_us == 0
    four = tensor_parallel(SHAPES["sdar-8b"], 4, 1040)
    assert four.step_us is None and four.sent_mib == pytest.approx(72 * 8.125 * 1.5)
    assert measured_us((130 + 1040) // 2 * 4096 * 2) == pytest.approx((17.8 + 48.6) / 2)
    assert measured_us(1) is None and measured_us(1 << 40) is None


def test_steps_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--shape", "sdar-8b", "--gpus", "[1,2]", "--rows", "130"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-1][0] == "2" and lines[-1][-1] == "1281.60"
