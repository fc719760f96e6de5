"""Step maps: which forward pass set each token of an answer, with which probabilities; and training examples from them."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

from .block import moved
from .checks import Fields, Json, short
from .plan import Span, SpanSamples
from .sequence import PassRecord, SequenceState, TokenChange
from .spec import Ids, Positions, Spec

Cell = TokenChange | int | None  # what set the token of a position, or its given token; None: it is masked
NOT_SAMPLED = (None, None, None)


@dataclass(frozen=True, slots=True)
class StepMap:
    """Which forward pass set each token of an answer, including tokens after its visible end.

    `token_changes` and `steps` have an entry for each of `token_ids`; it is None for masked and given tokens.
    """

    prompt_ids: Ids
    """Token ids of the prompt."""
    token_ids: tuple[int | None, ...]
    """Token of each position of the answer that was in a block; None if it stayed masked or lies past `max_tokens`."""
    suffix_ids: Ids
    """Token ids after the answer that every pass fed; not part of the answer (`SamplingParams.suffix`)."""
    block_starts: Positions
    """Offset in the answer at which each block begins, ascending."""
    mask_id: int | None
    """Token id of the mask; None if the model has none."""
    changes: tuple[TokenChange, ...]
    """All changes, by pass and offset. The first change of a position unmasks it; later ones edit or remask it."""
    recorded: SequenceState | None = field(default=None, repr=False, compare=False)
    """The recorded sequence, for `LLM.log_likelihood`; None in a map that was read from JSON."""

    @property
    def token_changes(self) -> tuple[TokenChange | None, ...]:
        """The change that set each token, with its log-probabilities."""
        *_, (cells, _) = self.played()
        return tuple([cell if isinstance(cell, TokenChange) else None for cell in cells])

    @property
    def steps(self) -> tuple[int | None, ...]:
        """The number of the pass that set each token."""
        return tuple([change and change.step for change in self.token_changes])

    def played(self) -> Iterator[tuple[list[Cell], list[TokenChange]]]:
        """Yield the answer before each pass that changed it, with the pass's changes; then the final answer, with none."""
        changed = {change.offset for change in self.changes}
        added = [change.masks - 1 for change in self.changes if change.masks is not None]
        cells: list[Cell] = [None if at in changed else token for at, token in enumerate(self.token_ids)]
        if added:
            cells = [None] * (len(cells) - sum(added))
        for _, group in groupby(self.changes, lambda change: change.step):
            changes = [*group]
            yield [*cells], changes
            for change in reversed(changes):  # from the right, because a replacement moves later positions
                put = change if change.masks is None and change.token_id is not None else None
                cells[change.offset : change.offset + 1] = [put] * (1 if change.masks is None else change.masks)
        yield cells, []

    def to_json(self) -> Json:
        """Return the map as JSON data, with the values of each change in a list."""
        data: Json = {each.name: getattr(self, each.name) for each in fields(self)[:-1]}
        return data | {"changes": [astuple(change) for change in self.changes]}

    @classmethod
    def from_json(cls, data: Fields) -> "StepMap":
        """Return the map of data from `to_json`, without `recorded`.

        Args:
            data: The JSON data, such as `dlstep.step_map` of a response.
        """
        try:
            given: Json = {each.name: tuple(data[each.name]) for each in fields(cls)[:4]}
            return cls(**given, mask_id=data["mask_id"], changes=tuple([TokenChange(*values) for values in data["changes"]]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"data must be what `StepMap.to_json` returned, got {short(data)}") from error


class TrainingExample(NamedTuple):
    """A training example: the input of a forward pass, and the tokens to predict."""

    input_ids: Ids
    """Prompt, answer and suffix before the pass; the mask id at masked positions, also after the blocks open then."""
    positions: Positions
    """Indices in `input_ids`, ascending, that the pass set."""
    targets: Ids
    """The token to predict at each of `positions`."""
    log_probabilities: tuple[float | None, ...]
    """The log-probability of each token in the distribution that it was drawn from, as in `TokenChange`."""
    plain_log_probabilities: tuple[float | None, ...]
    """The log-probability of each token in the plain softmax."""


def examples(answer: Any, merge: int | Literal["block", "answer"] = 1) -> Iterator[TrainingExample]:
    """Yield the training examples of an answer, oldest first.

    A number k merges k consecutive passes that changed the answer: the input precedes the first pass, and the targets are
    the tokens after the last (the shrinking of TraceRL, arXiv 2509.06949). `block` yields an example for each block, with
    all earlier blocks unmasked; `answer` yields one example with the whole answer masked. Both target the final tokens.

    Args:
        answer: An `Output` with a step map, or a `StepMap`.
        merge: The number of passes to merge, `block` or `answer`.

    Raises:
        ValueError: Without a step map; for another `merge`; for a model without a mask token; and for a `merge` other than 1
            if the length of the answer changed (dreamon).
    """
    found = getattr(answer, "step_map", answer)
    if not isinstance(found, StepMap):
        raise ValueError(f"{short(answer)} has no step map: give an Output, generated with SamplingParams(step_map=True)")
    if merge not in ("block", "answer") and (type(merge) is not int or merge < 1):
        raise ValueError(f"merge must be a positive number of passes, 'block' or 'answer', got {short(merge)}")
    if found.mask_id is None:
        raise ValueError("the model has no mask token, so no pass fed masks: only models with masks give examples")
    if merge != 1 and any(change.masks is not None for change in found.changes):
        raise ValueError(f"merge={short(merge)} needs an answer whose length never changed: give merge=1")
    return _merged(found, merge) if isinstance(merge, int) else _masked(found, found.block_starts if merge == "block" else (0,))


def _merged(found: StepMap, merge: int) -> Iterator[TrainingExample]:
    *played, _ = found.played()
    for first in range(0, len(played), merge):
        last = {change.offset: change for _, changes in played[first : first + merge] for change in changes}
        yield from _example(found, played[first][0], [last[offset] for offset in sorted(last)])


def _masked(found: StepMap, starts: Sequence[int]) -> Iterator[TrainingExample]:
    *_, (cells, _) = found.played()
    masked = [None if isinstance(cell, TokenChange) else cell for cell in cells]
    for start, end in pairwise((*starts, len(cells))):
        yield from _example(found, cells[:start] + masked[start:], cells[start:end])


def _example(found: StepMap, fed: Sequence[Cell], targets: Sequence[Cell]) -> Iterator[TrainingExample]:
    """Yield the example with these targets; nothing if none of them sets a token."""
    ids: list[Any] = [found.mask_id if cell is None else getattr(cell, "token_id", cell) for cell in fed]
    rows: list[Any] = [
        (len(found.prompt_ids) + each.offset, each.token_id, each.log_probability, each.plain_log_probability)
        for each in targets
        if isinstance(each, TokenChange) and each.token_id is not None
    ]
    if rows:
        yield TrainingExample((*found.prompt_ids, *ids, *found.suffix_ids), *zip(*rows, strict=True))


def step_map_of(sequence: SequenceState, spec: Spec) -> StepMap | None:
    """Return the step map of a sequence; None unless its request asks for one."""
    if not sequence.request.params.step_map:
        return None
    start, progress = sequence.request.start, sequence.progress
    blocks = [block for block in (*reversed([*progress.past]), *progress.window) if block.end > start]
    known = sequence.unmasked_tokens
    changes = tuple([change for each in reversed([*sequence.passes]) for change in each.changes])
    ends = [blocks[-1].end if blocks else start]
    if all(change.masks is None for change in changes):
        ends += [each.progress.window[-1].end for each in sequence.passes]  # dropped proposals may lie behind the last block
    return StepMap(
        sequence.request.prompt,
        tuple([known.get(position) for position in range(start, max(ends))]),
        sequence.request.params.suffix,
        tuple([max(block.start - start, 0) for block in blocks]),
        spec.mask_id,
        changes,
        sequence,
    )


def recorded(before: SequenceState, after: SequenceState, span: Span, samples: SpanSamples) -> PassRecord:
    """Return the record of a pass, whose samples have `policy`."""
    origin, replaced = before.request.start, after.progress.replaced
    window, gone = before.progress.window, {each.position: each for each in replaced}
    was, now = before.sampled_cells(window[0].start), after.sampled_cells(window[0].start)
    rows = {position: row for row, position in enumerate(span.wanted.sampled)}
    changes: list[TokenChange] = []
    for position in range(max(origin, window[0].start), min(window[-1].end, before.request.limit)):
        own, cell = gone.get(position), now.get(moved(position, replaced))
        if own is None and cell == was.get(position):
            continue
        token, masks = (cell and cell[0], None) if own is None else (own.token, own.count)
        values = NOT_SAMPLED if token is None or position not in rows else _measured(samples, rows[position], token)
        changes.append(TokenChange(before.steps - 1, position - origin, token, *values, masks=masks))
    return PassRecord(before.progress, tuple(changes))


def _measured(samples: SpanSamples, row: int, token: int) -> Sequence[float | None]:
    """Return the log-probability of a token of a row where it was sampled, that in the plain softmax, and the entropy."""
    best, width = len(samples.best_ids) // len(samples.tokens), len(samples.policy) // len(samples.tokens)
    ids = (samples.tokens[row], *samples.best_ids[row * best : (row + 1) * best])
    if token not in ids:
        return NOT_SAMPLED
    entropy, *logs = samples.policy[row * width : (row + 1) * width]
    index = ids.index(token)
    return logs[index], logs[len(ids) + index], entropy
