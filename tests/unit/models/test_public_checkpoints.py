"""Each row of the table of public checkpoints in docs/models.md holds, by the facts of its published config.json."""

import re
from pathlib import Path

import pytest

from ...helpers import published
from .folders import described

PAGE = (
    (Path(__file__).parents[3] / "docs" / "models.md").read_text().partition("## Public checkpoints")[2].partition("\n## ")[0]
)
ROWS = [(name, told) for names, told in re.findall(r"^\| ([\w., -]+) \| (.*) \|$", PAGE, re.M) for name in names.split(", ")][
    1:
]
# By a pattern of the name, the first that fits: the published config.json, and what this checkpoint's differs in.
FACTS = {
    "DreamOn|CDLM-Dream|Dream-|DiffuCoder": ("DREAM_7B", {}),
    "Stable": ("STABLE_DIFFCODER_8B", {}),
    "iLLaDA": ("ILLADA_8B", {}),
    "LLaDA-MoE-v2": ("LLADA_MOE_7B", {"model_type": "llada_moe_v2", "architectures": None, "auto_map": None}),
    "LLaDA-MoE": ("LLADA_MOE_7B", {}),
    "LLaDA2.2": ("LLADA2_MINI", {"expert_capacity": 64}),
    "LLaDA2|DMax": ("LLADA2_MINI", {}),
    "LLaDA-": ("LLADA_8B", {}),
    "Fast_dLLM": ("FAST_DLLM_V2_7B", {}),
    "SDAR-30B": ("SDAR_30B", {}),
    "SDAR": ("SDAR_8B", {}),
    "I-DLM": ("IDLM_8B", {}),
    "Qwen3-0.6B-diffusion|OPDLM": ("A2D_QWEN3", {}),
    "Qwen2.5": ("A2D_QWEN2", {}),
    "CoDA": ("CODA", {}),
    "open-dcoder": ("OPEN_DCODER", {}),
    "RND1": ("RND1_30B", {}),
    "Efficient": ("EFFICIENT_DLM_4B", {}),
    "WeDLM-8B": ("WEDLM_8B", {}),
    "WeDLM-7B": ("WEDLM_7B", {}),
    "SDLM": ("SDLM_3B", {}),
    "ReFusion": ("QWEN3_8B", {"mask_token_id": 151670}),
    "ModernBERT": ("QWEN3_8B", {"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"]}),
    "bd3lm": ("QWEN3_8B", {"model_type": "bd3lm", "architectures": ["BD3LM"]}),
}


@pytest.mark.parametrize("name, told", ROWS)
def test_a_public_checkpoint_loads_or_is_refused_as_the_page_says(tmp_path, name, told):
    facts, changes = next(known for pattern, known in FACTS.items() if re.search(pattern, name))
    try:
        found = described(tmp_path / name, getattr(published, facts), mask_token="<mask>", **changes)
    except ValueError as error:
        assert told.startswith("refused: ") and told.removeprefix("refused: ") in str(error)
    else:
        assert told == f"`{found.family.name}`"
