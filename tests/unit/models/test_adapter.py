"""LoRA adapters made by peft itself change a network as peft changes it, merged into the weights or kept separate."""
# PreTrainedModel.to is typed without dtype, and keywords are spread.
# pyright: reportArgumentType=false

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedModel

from dlstep.distributed.ranks import Ranks
from dlstep.models import FAMILIES
from dlstep.models.adapter import apply_adapter, read_adapter
from dlstep.models.compiled import compile_layers
from dlstep.models.reading import read_contents
from dlstep.models.sharding import parameter_shards
from dlstep.models.weights import WeightRule

from ...helpers.files import edit, edit_tensors, save_adapter
from ...helpers.tiny_families import LLADA_NAMES, LLADA_TOPS, write_checkpoint

# peft asks networks for this when it wraps them.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
IDS = torch.arange(2, 26)[None]
PREFIX = "base_model.model."
CLOSE = 2e-5
CONFIG = "adapter_config.json"


@dataclass(frozen=True)
class Case:
    """A network with random weights, and what its checkpoint calls its tensors."""

    network: PreTrainedModel
    rules: tuple[WeightRule, ...]
    stored: dict[str, tuple[int, ...]]

    def applied(self, folder, *, merge, dtype=torch.float32):
        """A copy of the network with the adapter in `folder`."""
        network = copy.deepcopy(self.network).to(dtype)
        apply_adapter(network, read_adapter(folder), self.rules, self.stored, merge=merge)
        return network


LLADA_PARTS = LLADA_TOPS | {"model.layers": "blocks"}


def llada_name(name):
    """The name that LLaDA has for a tensor of a Llama."""
    for old, new in ({old: f"model.transformer.{new}" for old, new in LLADA_PARTS.items()} | LLADA_NAMES).items():
        name = name.replace(old, new)
    return name


@cache
def case(family):
    """A small network of a family, its weights random."""
    with TemporaryDirectory() as folder:
        layers = {"n_layers": 3} if family == "llada" else {"num_hidden_layers": 3}
        network, _ = write_checkpoint(Path(folder), family, **layers)
        stored = {name: tensor.shape for name, tensor in read_contents(Path(folder)).tensors.items()}
    for parameter in network.requires_grad_(False).parameters():
        if parameter.ndim > 1:
            parameter.mul_(0.6)  # so that layers do not amplify the rounding that is compared
    return Case(network, FAMILIES[family].weights, stored)


def noisy_adapter(network, **options):
    """The network with an adapter of peft whose tensors are all random."""
    made = get_peft_model(copy.deepcopy(network), LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **options))
    generator = torch.Generator().manual_seed(2)
    for name, parameter in made.named_parameters():
        if "lora_" in name or "modules_to_save" in name or (parameter.requires_grad and name.endswith("bias")):
            parameter.data.normal_(std=0.1, generator=generator)
    return made.eval()


def logits(network):
    with torch.no_grad():
        return network(input_ids=IDS).logits


def llada_module(text):
    return llada_name(f"{text}.weight").removesuffix(".weight")


def saved(folder, family, **options):
    """An adapter of the network of a family, saved under the names of its checkpoint; and the network that has it."""
    made = noisy_adapter(case(family).network, **options)
    made.save_pretrained(str(folder), save_embedding_layers=False)
    if family == "llada":
        edit_tensors(folder / "adapter_model.safetensors", rename_to_llada)
        targets = options["target_modules"]
        if isinstance(targets, list):
            edit(folder / CONFIG, target_modules=[llada_module(target) for target in targets])
        for name in ("rank_pattern", "alpha_pattern"):
            edit(folder / CONFIG, **{name: {llada_module(key): value for key, value in options.get(name, {}).items()}})
    return made


def rename_to_llada(tensors):
    for name in list(tensors):
        tensors[PREFIX + llada_name(name.removeprefix(PREFIX))] = tensors.pop(name)


ATTENTION = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
FORMS = {
    "list": {"target_modules": [*ATTENTION, "mlp.gate_proj", "mlp.up_proj"]},
    "full paths": {"target_modules": ["model.layers.0.self_attn.q_proj", "model.layers.2.mlp.up_proj"]},
    "rslora": {"target_modules": ATTENTION, "use_rslora": True},
    "patterns": {
        "target_modules": ATTENTION,
        "rank_pattern": {"self_attn.q_proj": 7, "model.layers.1.self_attn.v_proj": 2},
        "alpha_pattern": {"self_attn.k_proj": 11},
    },
    "some layers": {"target_modules": ATTENTION, "layers_to_transform": [0, 2]},
}
PLAIN_FORMS = {
    "regex": {"target_modules": r".*\.[02]\..*\.(up|down|q)_proj"},
    "all-linear": {"target_modules": "all-linear"},
    "all but": {"target_modules": ["q_proj", "up_proj"], "exclude_modules": r".*\.1\..*"},
    "head": {"target_modules": ["q_proj", "lm_head"]},
    "whole modules": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "model.norm"]},
}


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "kept"])
@pytest.mark.parametrize(
    "family, form",
    [(family, form) for family in ("dream", "llada", "sdar") for form in FORMS]
    + [(family, form) for family in ("dream", "sdar") for form in PLAIN_FORMS],
)
def test_a_network_with_an_adapter_is_that_of_peft(family, form, merge, tmp_path):
    theirs = logits(saved(tmp_path, family, **(FORMS | PLAIN_FORMS)[form]))
    ours = case(family).applied(tmp_path, merge=merge)
    assert type(ours) is type(case(family).network)
    assert (logits(ours) - theirs).abs().max() < CLOSE
    assert (logits(case(family).network) - theirs).abs().max() > 0.1


@pytest.mark.full
@pytest.mark.parametrize("form", ["list", "regex", "whole modules"])
def test_a_kept_adapter_is_compiled_with_its_layers(form, tmp_path):
    theirs = logits(saved(tmp_path, "sdar", **(FORMS | PLAIN_FORMS)[form]))
    ours = case("sdar").applied(tmp_path, merge=False)
    compile_layers(ours, backend="eager")
    assert (logits(ours) - theirs).abs().max() < CLOSE


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "kept"])
@pytest.mark.parametrize("bias", ["all", "lora_only"])
def test_trained_biases_are_taken_over(bias, merge, tmp_path):
    theirs = logits(saved(tmp_path, "dream", target_modules=["q_proj", "o_proj"], bias=bias))
    assert (logits(case("dream").applied(tmp_path, merge=merge)) - theirs).abs().max() < CLOSE


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "kept"])
def test_the_head_of_llada_is_not_its_last_projection(merge, tmp_path):
    theirs = logits(saved(tmp_path, "llada", target_modules=["mlp.down_proj"]))
    edit(tmp_path / CONFIG, target_modules=r"model\.transformer\.blocks\..*\.ff_out")
    assert (logits(case("llada").applied(tmp_path, merge=merge)) - theirs).abs().max() < CLOSE
    edit(tmp_path / CONFIG, target_modules=["ff_out"])
    with pytest.raises(ValueError, match=r"missing: base_model\.model\.model\.transformer\.ff_out\.lora_A\.weight"):
        case("llada").applied(tmp_path, merge=merge)


def fused_adapter(folder, targets):
    """An adapter of LLaDA2, under its names; the same tensors, by the module that each is for."""
    generator = torch.Generator().manual_seed(3)
    found = {
        f"{name.removesuffix('.weight')}.lora_{part}.weight": torch.randn(size, generator=generator) * 0.2
        for name, shape in case("llada2").stored.items()
        if any(name.endswith(f"{target}.weight") for target in targets)
        for part, size in (("A", (4, shape[1])), ("B", (shape[0], 4)))
    }
    save_adapter(folder, found, 4, 8, targets)
    return found


def expected_llada2(tensors):
    """The network with the products added by hand."""
    network = copy.deepcopy(case("llada2").network)
    weights = network.state_dict()
    for name in [name for name in tensors if "lora_A" in name]:
        module = name.removesuffix(".lora_A.weight")
        delta = 2.0 * tensors[f"{module}.lora_B.weight"] @ tensors[name]
        layer, _, rest = module.partition(".attention." if ".attention." in module else ".mlp.")
        if rest == "query_key_value":
            for part, rows in zip("qkv", delta.split([64, 32, 32]), strict=True):
                weights[f"{layer}.self_attn.{part}_proj.weight"] += rows
        elif rest == "dense":
            weights[f"{layer}.self_attn.o_proj.weight"] += delta
        else:
            expert, projection = int(rest.split(".")[1]), rest.split(".")[2]
            stacked = weights[f"{layer}.mlp.experts.{'down' if projection == 'down_proj' else 'gate_up'}_proj"][expert]
            half = {"gate_proj": slice(0, 24), "up_proj": slice(24, 48), "down_proj": slice(None)}[projection]
            stacked[half] += delta
    return network


@pytest.mark.parametrize("merge", [True, False], ids=["merged", "kept"])
def test_a_fused_projection_is_adapted_part_by_part(merge, tmp_path):
    theirs = logits(expected_llada2(fused_adapter(tmp_path, ["attention.query_key_value", "dense"])))
    assert (logits(case("llada2").applied(tmp_path, merge=merge)) - theirs).abs().max() < CLOSE
    assert (logits(case("llada2").network) - theirs).abs().max() > 0.1


def test_experts_are_adapted_by_merging_only(tmp_path):
    targets = ["experts.3.gate_proj", "experts.3.up_proj", "experts.0.down_proj"]
    theirs = logits(expected_llada2(fused_adapter(tmp_path, targets)))
    assert (logits(case("llada2").applied(tmp_path, merge=True)) - theirs).abs().max() < CLOSE
    with pytest.raises(ValueError, match=r"as a separate module: model\.layers\.1\.mlp\.experts\.0\.down_proj.*pre_merge"):
        case("llada2").applied(tmp_path, merge=False)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_adapts_the_experts_that_it_holds(rank, tmp_path):
    tensors = fused_adapter(tmp_path, ["experts.3.gate_proj", "experts.7.up_proj", "experts.0.down_proj", "dense"])
    whole, network = expected_llada2(tensors), copy.deepcopy(case("llada2").network)
    cuts = parameter_shards(network, Ranks(rank, 2))

    def share(name, parameter):
        cut = cuts.get(name)
        return parameter if cut is None or cut.dim is None else parameter.narrow(cut.dim, cut.start, cut.stop - cut.start)

    for name, parameter in network.named_parameters():
        parameter.data = share(name, parameter.data).clone()
    adapter = read_adapter(tmp_path)
    apply_adapter(network, adapter, case("llada2").rules, case("llada2").stored, merge=True, ranks=Ranks(rank, 2))
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.data, share(name, whole.get_parameter(name).data), msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_rounded_once(dtype, tmp_path):
    saved(tmp_path, "dream", target_modules=["q_proj", "down_proj"])
    base = copy.deepcopy(case("dream").network).to(dtype)
    whole = Case(base.float(), (), case("dream").stored).applied(tmp_path, merge=True)
    rounded = case("dream").applied(tmp_path, merge=True, dtype=dtype)
    assert rounded.dtype == dtype
    for (name, ours), (_, theirs) in zip(rounded.named_parameters(), whole.named_parameters(), strict=True):
        assert torch.equal(ours, theirs.to(dtype)), name


def test_every_tensor_that_does_not_fit_is_named(tmp_path):
    saved(tmp_path, "dream", target_modules=["q_proj", "k_proj"])
    before = {name: parameter.clone() for name, parameter in case("dream").network.named_parameters()}

    def damage(tensors):
        at = f"{PREFIX}model.layers"
        del tensors[f"{at}.0.self_attn.q_proj.lora_B.weight"]
        tensors[f"{at}.0.self_attn.o_proj.lora_A.weight"] = torch.zeros(4, 32)
        tensors[f"{at}.2.self_attn.q_proj.lora_B.weight"] = torch.zeros(33, 4)
        tensors[f"{at}.2.self_attn.k_proj.lora_A.weight"] = torch.zeros(3, 32)
        tensors[f"{PREFIX}lm_head.weight"] = torch.zeros(case("dream").stored["lm_head.weight"])

    edit_tensors(tmp_path / "adapter_model.safetensors", damage)
    with pytest.raises(ValueError, match="does not fit Qwen2ForCausalLM") as caught:
        case("dream").applied(tmp_path, merge=True)
    for part in (
        "missing: base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
        "not used: base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight",
        "other shape: base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight has [33, 4], ",
        "other shape: base_model.model.model.layers.2.self_attn.k_proj.lora_A.weight has [3, 32], ",
        "not used: base_model.model.lm_head.weight",
    ):
        assert part in str(caught.value)
    assert str(caught.value).count(":") == 6
    assert all(torch.equal(before[name], parameter) for name, parameter in case("dream").network.named_parameters())


def test_a_shared_head_cannot_be_adapted(tmp_path):
    saved(tmp_path, "dream", target_modules=["q_proj", "lm_head"])
    with TemporaryDirectory() as folder:
        network, _ = write_checkpoint(Path(folder), "dream", tied=True)
    stored = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    with pytest.raises(ValueError, match=r"not supported: lm_head\.weight, whose weights are shared"):
        apply_adapter(network, read_adapter(tmp_path), (), stored, merge=True)
