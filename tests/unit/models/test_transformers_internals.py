"""What dlstep uses of transformers beyond its public interface, and the versions that it allows."""

import re
import tomllib
from pathlib import Path

import pytest
import torch
import transformers
from packaging.requirements import Requirement
from packaging.version import Version
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

import dlstep
from dlstep.models.families import FAMILIES
from dlstep.models.transformers_internals import NEWEST, OLDEST, Glm4MoeTopkRouter, cache_argument, new_model

ROOT = Path(__file__).parents[3]
PRIVATE = re.compile(
    r"(from|import) transformers\.|\b(_from_config|_tp_plan|base_model_tp_plan|_apply_gate|_is_hf_initialized"
    r"|past_key_values|is_compileable)\b"
)


def test_the_bounds_of_transformers_are_the_versions_that_were_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bound,) = [asked for asked in map(Requirement, project["dependencies"]) if asked.name == "transformers"]
    major, minor = map(int, NEWEST.split("."))
    assert {str(each) for each in bound.specifier} == {f">={OLDEST}", f"<{major}.{minor + 1}"}
    assert bound.specifier.contains(transformers.__version__)
    pinned = re.search(r"^transformers==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None and bound.specifier.contains(Version(pinned[1]))


def test_one_module_names_what_is_used_beyond_the_public_interface() -> None:
    source = Path(dlstep.__file__).parent
    naming = {str(path.relative_to(source)) for path in source.rglob("*.py") if PRIVATE.search(path.read_text())}
    assert naming == {"models/transformers_internals.py"}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_s_class_takes_its_cache_by_the_found_name(name: str) -> None:
    renamed = Version(transformers.__version__) >= Version("5.24")
    assert cache_argument(FAMILIES[name].network) == ("cache" if renamed else "past_key_values")


def test_a_new_model_has_one_dtype_whatever_the_class_creates() -> None:
    config = Glm4MoeConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, moe_intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
        first_k_dense_replace=1,
    )  # fmt: skip
    model = new_model(Glm4MoeForCausalLM, config, torch.bfloat16, "eager", torch.device("meta"))
    assert any(isinstance(module, Glm4MoeTopkRouter) for module in model.modules())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
