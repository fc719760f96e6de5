"""Networks: model families, checkpoint folders, and attention over KV cache pages."""

from .adapter import adapt as adapt
from .adapter_files import Adapter as Adapter, read_adapter as read_adapter
from .attention import ATTENTION as ATTENTION, PagedContext as PagedContext, install as install
from .checkpoint import Checkpoint as Checkpoint, load_checkpoint as load_checkpoint
from .description import Description as Description, read_description as read_description
from .families import FAMILIES as FAMILIES, Family as Family
