"""Device functions in plain torch. Each defines what a faster kernel of the same name must return."""

from .attention import (
    AttentionBatch as AttentionBatch,
    AttentionLayout as AttentionLayout,
    Spans as Spans,
    lay_out as lay_out,
    paged_attention as paged_attention,
    visible_range as visible_range,
)
from .draws import draw_keys as draw_keys, integers as integers, mix as mix, uniform as uniform
from .merge import SoftRows as SoftRows, merge_embeddings as merge_embeddings
from .pages import store_kv as store_kv
from .sampling import Drawn as Drawn, Penalty as Penalty, Reading as Reading, Settings as Settings, sample as sample
