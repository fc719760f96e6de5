"""The driver's data for live requests: page tables and carry slots, both assigned by plans, and token masks."""

from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from ..core import Config, DlstepError, Plan, Span
from ..core.automaton import members
from ..core.constraint import Constraint, RequestConstraint, TokenMask
from .arena import staged

BySequence = dict[int, int]


class PageTables:
    """A row of page numbers for each request with pages, and its carry slot. `apply` takes time per changed page."""

    def __init__(self, config: Config) -> None:
        size = config.max_num_reqs, config.max_model_len // config.page_size + 2
        self.pages: Int64[np.ndarray, "reqs width"] = np.zeros(size, dtype=np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget every request."""
        self.lengths: BySequence = {}  # number of pages
        self.rows: BySequence = {}
        self.slots: BySequence = {}  # carry slot, for requests that have one
        self._free = list(range(len(self.pages)))[::-1]

    def apply(self, plan: Plan) -> None:
        """Apply the ownership changes of `plan`. Raises DlstepError if an admission gets no row."""
        for seq_id in (*plan.releases, *plan.preemptions):
            self.slots.pop(seq_id, None)
            row = self.rows.pop(seq_id, None)
            if row is not None:  # a request may end without ever having held pages
                self._free.append(row)
                del self.lengths[seq_id]
        for admission in plan.admissions:
            if admission.seq_id in self.rows or not self._free:
                raise DlstepError(
                    f"step {plan.step} admits request {admission.seq_id}, which is live or one too many: "
                    f"{len(self.rows)} of {len(self.pages)} requests hold pages"
                )
            self.rows[admission.seq_id] = self._free.pop()
            self.lengths[admission.seq_id] = 0
            if admission.slot is not None:
                self.slots[admission.seq_id] = admission.slot
            self._extend(admission.seq_id, admission.shared)
        for grant in plan.grants:
            self._extend(grant.seq_id, grant.pages)

    def _extend(self, seq_id: int, pages: tuple[int, ...]) -> None:
        held = self.lengths[seq_id]
        count = held + len(pages)
        missing = count - self.pages.shape[1]
        if missing > 0:
            self.pages = np.pad(self.pages, ((0, 0), (0, max(missing, self.pages.shape[1]))))
        self.pages[self.rows[seq_id], held:count] = pages
        self.lengths[seq_id] = count


CAPACITY = 4096  # rows allocated for the first constrained request: 78 MB for 152,064 ids (19 kB per row)


class MaskTable:
    """The token masks of constrained requests on a device, one bit per id, uploaded at first use. Row 0 allows every id.

    Bit i of word w of a row belongs to id 32 * w + i. A mask keeps its row until the table is full
    and the mask is the least recently used one. CUDA graphs read `words` at a fixed address, so the
    table is replaced only if one forward pass needs more rows than it has; the new table has at
    least twice as many rows.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._width, self._device = -(-vocab_size // 32), device
        self._row_of: dict[int, int] = {}  # by mask id, least recently used first
        self._free: list[int] = []  # rows without a mask
        self.words: Int32[Tensor, "rows words"] = torch.empty((0, self._width), dtype=torch.int32, device=device)

    def rows_of(self, spans: Iterable[Span]) -> Int64[np.ndarray, " w"]:
        """Return the row of the mask of each sampled position of the spans; upload missing masks first.

        The rows are valid for forward passes that start before the next call.
        """
        self._hold({mask.id: mask for span in spans for mask in span.wanted.masks})
        row_of, rows = self._row_of, list[int]()
        for span in spans:
            rows += [row_of[mask.id] for mask in span.wanted.masks] if span.wanted.masks else [0] * len(span.wanted.sampled)
        return np.array(rows, dtype=np.int64)

    @torch.inference_mode()  # a tensor created in this mode can only be changed in it
    def _hold(self, masks: Mapping[int, TokenMask]) -> None:
        """Assign a row to each mask, and mark the masks as recently used."""
        if len(masks) >= len(self.words):  # row 0 is taken
            self._allocate(max(CAPACITY, 1 << len(masks).bit_length()))
        for mask_id in masks:
            if (row := self._row_of.pop(mask_id, None)) is not None:
                self._row_of[mask_id] = row
        missing = [mask for mask_id, mask in masks.items() if mask_id not in self._row_of]
        if not missing:
            return
        bits = np.empty((len(missing), self._width), dtype=np.int32)
        for line, mask in enumerate(missing):
            bits[line] = packed(mask)
        while len(self._free) < len(missing):  # never evicts one of `masks`: they are last, and fit
            self._free.append(self._row_of.pop(next(iter(self._row_of))))
        rows = self._free[: len(missing)]
        # The copy runs in stream order, after earlier forward passes have read the old masks: the host need not wait.
        sent = staged({"rows": np.array(rows, dtype=np.int64), "bits": bits.reshape(-1)}, self._device)
        self.words.index_copy_(0, sent["rows"], sent["bits"].view(-1, self._width))
        del self._free[: len(missing)]
        self._row_of |= {mask.id: row for mask, row in zip(missing, rows, strict=True)}

    def _allocate(self, capacity: int) -> None:
        """Replace the table by an empty one with `capacity` rows."""
        self.words = torch.empty((capacity, self._width), dtype=torch.int32, device=self._device)
        self.words[0] = -1
        self._row_of, self._free = {}, list(range(1, capacity))


def prepare_constraint(constraint: RequestConstraint) -> None:
    """Compute and cache what the masks of a request need and whose cost grows with the size of its constraint."""
    _ = constraint.ends
    _bits_of(constraint.constraint)


def packed(mask: TokenMask) -> Int32[np.ndarray, " words"]:
    """Return the mask as bits, 32 ids per word; bits after the last id are 0. The next call overwrites the array."""
    assert mask.constraint is not None, "a mask that was read from a trace has no ids to look up"
    return _bits_of(mask.constraint).words(mask.classes)


def _bits_of(constraint: Constraint) -> "_MaskBits":
    return _BITS_OF.get(constraint) or _BITS_OF.setdefault(constraint, _MaskBits(constraint))


class _MaskBits:
    """The bits of sets of classes, computed from an earlier set by flipping only the classes that differ.

    One class may have most of the ids; in JSON, these are the ids that any string may contain. The
    last set with this largest class and the last set without it are both kept, so that few bits need
    to be flipped.
    """

    def __init__(self, constraint: Constraint) -> None:
        class_of = np.array(constraint.class_of, dtype=np.min_scalar_type(constraint.stop_class))  # 16-bit numbers sort faster
        order = np.argsort(class_of, kind="stable")  # ids, class by class
        sizes = np.bincount(class_of, minlength=constraint.stop_class + 1)
        self._ids_of, self._largest = np.split(order, np.cumsum(sizes)[:-1]), int(sizes.argmax())
        bits = np.zeros((2, 32 * -(-len(class_of) // 32)), dtype=np.bool_)
        bits[1, : len(class_of)] = class_of == self._largest
        words = np.packbits(bits, axis=1, bitorder="little").view(np.int32)
        self._last = [(0, words[0]), (1 << self._largest, words[1])]

    def words(self, classes: int) -> Int32[np.ndarray, " words"]:
        """Return the bits of the ids whose class is in the bitmap."""
        kind = classes >> self._largest & 1
        last, words = self._last[kind]
        if flipped := [self._ids_of[letter] for letter in members(classes ^ last)]:
            ids = np.concatenate(flipped)
            np.bitwise_xor.at(words, ids >> 5, _BIT[ids & 31])
            self._last[kind] = classes, words
        return words


_BIT = (1 << np.arange(32)).astype(np.uint32).view(np.int32)  # of an id in its word
_BITS_OF: "WeakKeyDictionary[Constraint, _MaskBits]" = WeakKeyDictionary()
