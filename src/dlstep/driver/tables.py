"""Track the pages and the carry slot of each live request, as plans assign them."""

import numpy as np
from jaxtyping import Int64

from ..core import Config, DlstepError, Plan


class PageTables:
    """A row of page numbers for each request with pages. `apply` takes time per changed page."""

    def __init__(self, *, max_num_reqs: int, width: int) -> None:
        self.pages: Int64[np.ndarray, "reqs width"] = np.zeros((max_num_reqs, width), dtype=np.int64)
        self.lengths: dict[int, int] = {}  # sequence number to number of pages
        self.rows: dict[int, int] = {}  # sequence number to row
        self._free = list(range(max_num_reqs))[::-1]

    def clear(self) -> None:
        """Forget every request."""
        self.rows, self.lengths = {}, {}
        self._free = list(range(len(self.pages)))[::-1]

    def copy(self, other: "PageTables") -> None:
        """Copy the content of `other`."""
        self.pages, self.lengths, self.rows = other.pages.copy(), dict(other.lengths), dict(other.rows)
        self._free = list(other._free)

    def apply(self, plan: Plan) -> None:
        """Apply the ownership changes of `plan`. Raises DlstepError if an admission gets no row."""
        for seq_id in (*plan.releases, *plan.preemptions):
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


def page_tables(config: Config) -> PageTables:
    """Return empty tables for this configuration."""
    return PageTables(max_num_reqs=config.max_num_reqs, width=config.max_model_len // config.page_size + 2)


class CarrySlots:
    """The carry slot of each live request that has one."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}

    def clear(self) -> None:
        """Forget every request."""
        self.slots = {}

    def apply(self, plan: Plan) -> None:
        """Apply the ownership changes of `plan`."""
        for seq_id in (*plan.releases, *plan.preemptions):
            self.slots.pop(seq_id, None)
        for admission in plan.admissions:
            if admission.slot is not None:
                self.slots[admission.seq_id] = admission.slot
