"""FP8 on a CUDA device: kernels compared with their twins, and embedded models with captured graphs."""

# The driver is a `TorchDriver`.
# pyright: reportAttributeAccessIssue=false

import pytest
import torch

from dlstep import LLM, SamplingParams, tiny
from dlstep.models.quantization import QuantizedLinear
from dlstep_kernels import quantize_rows, scaled_linear
from dlstep_kernels.quantization import FP8
from training.stories import score

pytestmark = pytest.mark.gpu
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
MODELS = ("tiny-bd", "tiny-llada", "tiny-d2f", "tiny-canvas")


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32], ids=str)
@pytest.mark.parametrize("rows, width", [(1, 16), (130, 4096), (1040, 12288), (7, 33)])
def test_quantize_rows_equals_its_twin(rows, width, dtype):
    generator = torch.Generator("cuda").manual_seed(rows)
    given = torch.randn(rows, width, device="cuda", generator=generator).to(dtype) * 3
    (found, scales), (expected, its) = quantize_rows.kernel(given), quantize_rows.twin(given)
    assert torch.equal(scales, its) and torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32], ids=str)
@pytest.mark.parametrize("rows", [1, 16, 130, 1040])
@pytest.mark.parametrize("sizes", [(6144, 4096), (4096, 12288), (48, 40)])
def test_scaled_linear_matches_float64(sizes, rows, dtype):
    (outputs, inputs), generator = sizes, torch.Generator("cuda").manual_seed(rows)
    given = torch.randn(rows, inputs, device="cuda", generator=generator).to(dtype)
    weight, scales = quantize_rows(torch.randn(outputs, inputs, device="cuda", generator=generator))
    bias = torch.randn(outputs, device="cuda", generator=generator).to(dtype)
    found = scaled_linear(given, weight, scales, torch.ones((), device="cuda"), bias)
    codes, row_scales = quantize_rows(given)
    exact = (codes.double() @ weight.double().T) * (row_scales[:, None] * scales) + bias.double()
    assert found.dtype == dtype
    assert float((found.double() - exact).norm() / exact.norm()) < 1e-2


@pytest.mark.parametrize("option", ["quantization", "kv_cache_dtype"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_graphs_do_not_change_answers_and_accuracy_is_kept(model, dtype, option, cuda_device):
    problems = tiny.problems(64, seed=9)
    outputs = []
    for eager in (True, False):
        llm = LLM(model, device=cuda_device, dtype=dtype, enforce_eager=eager, max_num_reqs=16, **{option: "fp8"})
        network = llm.engine.driver.network
        quantized = any(isinstance(module, QuantizedLinear) for module in network.model.modules())
        assert (quantized, network.kv_dtype == FP8) == (option == "quantization", option == "kv_cache_dtype")
        outputs.append(llm.generate([one.prompt for one in problems], SamplingParams(max_tokens=48)))
    assert outputs[0] == outputs[1]
    right = sum(score(one, output.text).answer for one, output in zip(problems, outputs[0], strict=True))
    print(f"{model}, {option}, {dtype}: {right} of 64 right")
    assert right >= 54
