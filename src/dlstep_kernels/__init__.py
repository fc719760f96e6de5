"""Device functions. Plain PyTorch twins define the results; `gpu` has equivalent Triton kernels."""

from .attention import (
    AttentionLayout as AttentionLayout,
    Spans as Spans,
    lay_out as lay_out,
    paged_attention as paged_attention,
    store_kv as store_kv,
    visible_range as visible_range,
)
from .choice import has_kernels as has_kernels
from .draws import draw_keys as draw_keys, integers as integers, mix as mix, uniform as uniform
from .embeddings import SoftRows as SoftRows, merge_embeddings as merge_embeddings, token_shares as token_shares
from .experts import mix_experts as mix_experts
from .head import head_and_sample as head_and_sample
from .quantization import quantize_rows as quantize_rows, scaled_linear as scaled_linear, supports_fp8 as supports_fp8
from .routing import choose_experts as choose_experts, softmax_experts as softmax_experts
from .sampling import (
    Drawn as Drawn,
    Penalty as Penalty,
    SamplerConfig as SamplerConfig,
    Settings as Settings,
    policy_of as policy_of,
    sample as sample,
)
from .tiles import Tiles as Tiles, tiled_attention as tiled_attention
