"""Networks: model families, checkpoint folders, and attention over KV cache pages."""

from .adapter import Adapter as Adapter, adapt as adapt, read_adapter as read_adapter
from .checkpoint import Checkpoint as Checkpoint, load_checkpoint as load_checkpoint
from .description import Description as Description, read_description as read_description
from .families import FAMILIES as FAMILIES, Family as Family, Signs as Signs, Token as Token
from .layers import ATTENTION as ATTENTION, PagedContext as PagedContext, install as install
