"""The token masks of constrained requests on the device, with one bit per id, uploaded at first use."""

from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Int32, Int64, UInt8
from torch import Tensor

from ..core import Span
from ..core.constraint import Constraint, TokenMask
from .arena import staged

CAPACITY = 4096  # rows allocated for the first constrained request: 78 MB for 152,064 ids (19 kB per row)


class MaskTable:
    """Bit masks over ids on a device. Row 0 allows every id.

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
        masks = {mask.id: mask for span in spans for mask in span.masks}
        self._hold(masks)
        rows: list[int] = []
        for span in spans:
            rows += [self._row_of[mask.id] for mask in span.masks] if span.masks else [0] * len(span.sampled)
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
        bits = np.concatenate([packed(mask, self._width) for mask in missing])
        while len(self._free) < len(missing):  # never evicts one of `masks`: they are last, and fit
            self._free.append(self._row_of.pop(next(iter(self._row_of))))
        rows = self._free[: len(missing)]
        # The copy runs in stream order, after earlier forward passes have read the old masks: the host need not wait.
        sent = staged({"rows": np.array(rows, dtype=np.int64), "bits": bits}, self._device)
        self.words.index_copy_(0, sent["rows"], sent["bits"].view(-1, self._width))
        del self._free[: len(missing)]
        self._row_of |= {mask.id: row for mask, row in zip(missing, rows, strict=True)}

    def _allocate(self, capacity: int) -> None:
        """Replace the table by an empty one with `capacity` rows."""
        self.words = torch.empty((capacity, self._width), dtype=torch.int32, device=self._device)
        self.words[0] = -1
        self._row_of, self._free = {}, list(range(1, capacity))


def packed(mask: TokenMask, words: int) -> Int32[np.ndarray, " words"]:
    """Return the mask as bits, 32 ids per word; bits after the last id are 0."""
    assert mask.constraint is not None, "a mask that was read from a trace has no ids to look up"
    line = np.zeros(words * 4, dtype=np.uint8)
    known = _IDS_OF.get(mask.constraint) or _IDS_OF.setdefault(mask.constraint, _AllowedIds(mask.constraint))
    bits = np.packbits(known.allowed(mask.classes), bitorder="little")
    line[: len(bits)] = bits
    return line.view("<i4").astype(np.int32)


class _AllowedIds:
    """The ids of sets of classes, computed from an earlier set by updating only the classes that differ.

    Few sets have about half of the ids: in JSON, positions inside a string may hold nearly all ids,
    other positions nearly none. So the last set of either kind is kept, and each set is computed
    from the last one of its kind.
    """

    def __init__(self, constraint: Constraint) -> None:
        class_of, self._count = np.array(constraint.class_of, dtype=np.int32), constraint.stop_class + 1
        self._order = np.argsort(class_of, kind="stable").astype(np.int32)  # ids, class by class
        self._sizes = np.bincount(class_of, minlength=self._count)
        self._ends = np.cumsum(self._sizes)
        none, ids = np.zeros(self._count, dtype=np.uint8), np.zeros(len(class_of), dtype=np.uint8)
        self._last = [(none, ids), (none + 1, ids + 1)]

    def allowed(self, classes: int) -> UInt8[np.ndarray, " ids"]:
        """Return 1 for each id whose class is in the bitmap, else 0; valid until the next call."""
        bits = np.frombuffer(classes.to_bytes(-(-self._count // 8), "little"), dtype=np.uint8)
        chosen = np.unpackbits(bits, count=self._count, bitorder="little")
        kind = int(2 * self._sizes.dot(chosen) > len(self._order))
        last, ids = self._last[kind]
        for letter in np.flatnonzero(chosen != last).tolist():
            end = self._ends[letter]
            ids[self._order[end - self._sizes[letter] : end]] = chosen[letter]
        self._last[kind] = chosen, ids
        return ids


_IDS_OF: "WeakKeyDictionary[Constraint, _AllowedIds]" = WeakKeyDictionary()
