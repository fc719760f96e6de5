"""Templates of reads: fixed texts, and slots that one of several labels fills."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.checks import listed, plain, short, text_of
from .detokenize import Tokenizer, decode, encode

TemplatePart = str | Sequence[str]  # a text, or the labels of a slot
MOST_LABELS = 256  # of one slot


@dataclass(frozen=True, slots=True)
class ReadTemplate:
    """An encoded template: its tokens, where slots have their first label, and the labels of each slot."""

    tokens: tuple[int, ...]
    slots: tuple[int, ...]
    """The offset of each slot."""
    label_ids: tuple[tuple[int, ...], ...]
    """The token id of each label of each slot."""
    labels: tuple[tuple[str, ...], ...]
    """The labels of each slot."""

    @property
    def pinned(self) -> tuple[tuple[int, int], ...]:
        """The fixed tokens by offset."""
        return tuple([(offset, token) for offset, token in enumerate(self.tokens) if offset not in self.slots])

    @property
    def padded_ids(self) -> tuple[int, ...]:
        """The label ids of all slots in turn, equally many for each; -1 is none."""
        width = max(map(len, self.label_ids))
        return tuple([each for ids in self.label_ids for each in (*ids, *(-1,) * (width - len(ids)))])


def encode_template(tokenizer: Tokenizer | None, template: Sequence[TemplatePart]) -> ReadTemplate:
    """Return the template as tokens.

    Raises ValueError if it has no slots, or if a label is not one token in its place.
    """
    parts = _checked(template)
    if tokenizer is None:
        raise ValueError("a template is text, and the engine has no tokenizer")
    places = [place for place, part in enumerate(parts) if isinstance(part, tuple)]

    def encoded(changed: int = -1, label: str = "") -> tuple[int, ...]:
        """Return the tokens with the first label in each slot, but `label` in the slot `changed`."""
        firsts = [part if isinstance(part, str) else label if place == changed else part[0] for place, part in enumerate(parts)]
        return encode(tokenizer, "".join(firsts), add_special_tokens=False)

    tokens, slots, label_ids, labels = encoded(), list[int](), list[tuple[int, ...]](), list[tuple[str, ...]]()
    for place in places:
        own = parts[place]
        assert isinstance(own, tuple), "it is a slot"
        offsets, ids = set[int](), list[int]()
        for label in own[1:]:
            others = encoded(place, label)
            differing = {offset for offset, pair in enumerate(zip(tokens, others, strict=False)) if pair[0] != pair[1]}
            offsets |= differing
            if len(others) != len(tokens) or len(differing) != 1 or len(offsets) != 1:
                raise ValueError(
                    f"template[{place}]: the labels {short(own[0])} and {short(label)} must differ in one token in this place, "
                    "and their tokens differ in more: give labels that are one token each, and put blanks where the tokenizer "
                    "does, such as before a word"
                )
            ids.append(others[min(differing)])
        offset = min(offsets)
        for label, token in zip(own, (tokens[offset], *ids), strict=True):
            if label.strip() not in decode(tokenizer, (token,)):
                raise ValueError(f"template[{place}]: the label {short(label)} is more than one token in its place")
        if slots and offset <= slots[-1]:
            raise ValueError(f"template[{place}] shares its token with the slot before it: put text between them")
        slots.append(offset)
        label_ids.append((tokens[offset], *ids))
        labels.append(own)
    return ReadTemplate(tokens, tuple(slots), tuple(label_ids), tuple(labels))


def _checked(template: object) -> list[str | tuple[str, ...]]:
    """Return the parts of a template, slots as tuples. Raises ValueError for anything else."""
    form = 'a template must be a list of texts and slots, like ["The answer is", [" yes", " no"], "."]'
    parts: list[str | tuple[str, ...]] = []
    many = listed(template)
    if many is None:
        raise ValueError(f"{form}, got {short(template)}")
    for place, part in enumerate(many):
        text = text_of(plain(part))
        own: Any = None if text is not None else listed(part)
        if text is None and (own is None or any(text_of(label) is None for label in own)):
            raise ValueError(f"{form}; template[{place}] is {short(part)}")
        labels = tuple([str(text_of(label)) for label in own or ()])
        if text is None and not 2 <= len({*labels}) == len(labels) <= MOST_LABELS:
            raise ValueError(f"template[{place}] must have 2 to {MOST_LABELS} different labels, got {short(part)}")
        parts.append(labels if text is None else text)
    if not any(isinstance(part, tuple) for part in parts):
        raise ValueError(f"{form}; this one has no slot: {short(template)}")
    return parts
