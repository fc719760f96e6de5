"""Networks that several ranks compute together, against the whole: hidden states, logits and what each rank holds."""

import pytest
import torch

from dlstep.core import Config, Request, SamplingParams, init
from dlstep.distributed.ranks import ALONE, Ranks
from dlstep.driver import TorchDriver
from dlstep.engine.decode import Decode
from dlstep.models import adapt, load_checkpoint, read_adapter
from dlstep.models.compiled import compile_layers
from dlstep.models.sharding import parameter_shards
from dlstep.models.weights import empty_network
from dlstep.strategies import load

from ...helpers.ranks_running import run_ranks
from ...helpers.tiny_families import FACTS, write_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
CLOSE = 1e-5
# Families of one class and one table differ in names of tensors only: one of each class has biases, one is tied.
CLASSES = ("dream", "stable_diffcoder", "sdar", "sdar_moe", "llada2")
VARIANTS = [
    *((f"{family}-plain", {"heads": (4, 2)}) for family in FACTS),
    *((f"{family}-biased", {"heads": (4, 1), "biases": True, "shards": 3}) for family in CLASSES),
    *((f"{family}-tied", {"heads": (4, 4), "tied": True}) for family in CLASSES),
]


def strategy_of(checkpoint):
    described = checkpoint.description
    sizes = ("block_size", "bd_size", "canvas_length")
    options = {name: value for name, value in described.options.items() if name in sizes}
    kind = load(described.decoding_strategy)
    return kind(**{name: value for name, value in options.items() if name in kind.__dataclass_fields__})


def answers(ranks, folder, adapter=None, *, compiles=False):
    """Answers to a batch of requests, their probabilities, and the shapes that this rank holds."""
    # In float64, because the noise of a random DiffusionGemma's rounding grows tenfold from step to step.
    dtype = torch.float64 if folder.name.startswith("diffusion_gemma") else None
    checkpoint = load_checkpoint(folder, dtype=dtype, ranks=ranks)
    if adapter is not None:
        adapt(checkpoint, read_adapter(adapter), merge=True)
    if compiles:
        compile_layers(checkpoint.network, backend="eager")
    config = Config(
        spec=checkpoint.spec, page_size=4, num_pages=64, max_model_len=64, max_num_reqs=3, max_num_batched_tokens=200
    )
    strategy = strategy_of(checkpoint)
    decode = Decode(init(config, strategy), TorchDriver(checkpoint, config), prunes=False)
    prompts = [(5, 6, 7), (9, 8, 7, 6, 5, 4), (11, 12)]
    for number, prompt in enumerate(prompts):
        hot = {"temperature": 0.7, "seed": number} if number and checkpoint.spec.mask_id is not None else {}
        if number == 2 and hot:
            hot |= {"top_k": 5, "top_p": 0.9}
        decode.add(Request(number, prompt, SamplingParams(max_tokens=12, ignore_eos=True, **hot)))
    while not decode.state.done:
        decode.step()
    ended = [decode.state.find(number) for number in range(len(prompts))]
    shapes = {name: tuple(weight.shape) for name, weight in checkpoint.network.named_parameters()}
    return [each.answer for each in ended], [each.probabilities for each in ended], shapes


def all_answers(ranks, folders):
    import warnings

    warnings.simplefilter("ignore")
    return [answers(ranks, folder) for folder in folders]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("families")
    made = {}
    for name, options in VARIANTS:
        write_checkpoint(base / name, name.split("-")[0], **options)
        made[name] = base / name
    return made


@pytest.mark.full
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.stress)])
def test_ranks_answer_as_one_process(size, folders):
    """Every family, with fewer and with more key heads than ranks, biases, tied heads and several files."""
    alone = dict(zip(folders, all_answers(ALONE, list(folders.values())), strict=True))
    for number, found in enumerate(run_ranks(size, all_answers, list(folders.values()))):
        for name, (tokens, probabilities, shapes) in zip(folders, found, strict=True):
            assert tokens == alone[name][0], (number, name)
            for one, other in zip(probabilities, alone[name][1], strict=True):
                torch.testing.assert_close(torch.tensor(one), torch.tensor(other), atol=CLOSE, rtol=1e-4)
            held, whole = ({key: torch.Size(shape).numel() for key, shape in each.items()} for each in (shapes, alone[name][2]))
            cut = [key for key in whole if key.endswith(("q_proj.weight", "o_proj.weight", "down_proj", "gate_up_proj"))]
            assert all(held[key] * size == whole[key] for key in cut), name


@pytest.mark.parametrize("quantized", [False, True])
def test_ranks_hold_different_experts_bit_for_bit(quantized, folders):
    def experts(ranks):
        network = load_checkpoint(folders["llada2-plain"], ranks=ranks, quantized=quantized).network
        return {name: each for name, each in (*network.named_parameters(), *network.named_buffers()) if ".experts." in name}

    whole = experts(ALONE)
    assert len(whole) == 4 * (1 + quantized), "with scales"
    for rank in (0, 1):
        for name, tensor in experts(Ranks(rank, 2)).items():
            own = whole[name].chunk(2)[rank]
            assert torch.equal(tensor.float(), own.float()) and tensor.dtype == own.dtype, name


def empty_sdar(folders):
    network = load_checkpoint(folders["sdar-plain"]).network
    return empty_network(type(network), network.config, torch.float32)


def test_key_heads_that_are_fewer_than_ranks_are_repeated(folders):
    """Four ranks, four query heads, two key heads: neighbours, whose queries see the same keys, hold the same head."""
    network = empty_sdar(folders)
    held = [parameter_shards(network, Ranks(rank, 4, "")) for rank in range(4)]
    size = network.config.head_dim
    for name, firsts in {"q_proj": (0, 1, 2, 3), "k_proj": (0, 0, 1, 1), "v_proj": (0, 0, 1, 1)}.items():
        found = [cuts[f"model.layers.0.self_attn.{name}.weight"] for cuts in held]
        assert [(cut.start, cut.stop) for cut in found] == [(size * first, size * (first + 1)) for first in firsts], name


def test_a_network_without_a_table_is_refused_by_name(monkeypatch, folders):
    network = empty_sdar(folders)
    table = {**network.config.base_model_tp_plan, "embed_tokens": "embedding_rowwise"}  # for tied heads
    monkeypatch.setattr(type(network.config), "base_model_tp_plan", table)
    assert parameter_shards(network, Ranks(1, 2))["model.embed_tokens.weight"].dim == -2
    monkeypatch.setattr(type(network.config), "base_model_tp_plan", None)
    with pytest.raises(ValueError, match="no tp_plan for Qwen3ForCausalLM"):
        parameter_shards(network, Ranks(0, 2, ""))


@pytest.mark.parametrize("size, said", [(3, "does not fit 4 query heads and 2 key heads"), (8, "4 query heads")])
def test_a_number_of_ranks_that_does_not_fit_is_refused(size, said, folders):
    with pytest.raises(ValueError, match=said):
        load_checkpoint(folders["sdar-plain"], ranks=Ranks(0, size, ""))
