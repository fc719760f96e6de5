"""Templates of reads: fixed text with slots, each filled by one of several labels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core import Ids, Positions, Refused, Texts
from ..core.checks import listed, plain, short, text_of
from .detokenize import Tokenizer, decode
from .prompts import encode_text

TemplatePart = str | Sequence[str]  # a text, or the labels of a slot
Parts = list[str | Texts]
MOST_LABELS = 256  # of one slot
MOST_TRIED = 16  # slots that are encoded one by one to name the wrong one in an error


class ReadTemplate(NamedTuple):
    """An encoded template: its tokens, with the first label in each slot, and the labels of each slot."""

    tokens: Ids
    slots: Positions
    """The offset of each slot."""
    label_ids: tuple[Ids, ...]
    """The token id of each label of each slot."""
    labels: tuple[Texts, ...]
    """The labels of each slot."""

    @property
    def pinned(self) -> tuple[tuple[int, int], ...]:
        """The fixed tokens, as pairs of offset and token id."""
        return tuple([(offset, token) for offset, token in enumerate(self.tokens) if offset not in self.slots])

    @property
    def padded_ids(self) -> Ids:
        """The label ids of all slots, slot after slot; slots with fewer labels are padded with -1."""
        width = max(map(len, self.label_ids))
        return tuple([each for ids in self.label_ids for each in (*ids, *(-1,) * (width - len(ids)))])


def encode_template(tokenizer: Tokenizer | None, template: Sequence[TemplatePart]) -> ReadTemplate:
    """Return the encoded template.

    Args:
        tokenizer: The tokenizer of the model.
        template: The parts in order: a fixed text as a string, a slot as the sequence of its labels.

    Raises:
        Refused: There is no slot or no tokenizer, or a label is not exactly one token in its slot.
    """
    parts = _checked(template)
    if tokenizer is None:
        raise Refused("template", "unsupported", "a template needs a tokenizer, and the engine has none")
    places = [place for place, part in enumerate(parts) if isinstance(part, tuple)]
    labels = [part for part in parts if isinstance(part, tuple)]
    tokens, slots = _filled(tokenizer, parts, places, 0), list[int]()
    label_ids = [list[int]() for _ in places]
    # Encode label `number` of all slots at once, so that the number of encodings does not grow with the
    # number of slots. The tokens must differ from those of the first labels at exactly these slots.
    for number in range(1, max(map(len, labels))):
        changed = [index for index, own in enumerate(labels) if number < len(own)]
        others = _filled(tokenizer, parts, places, number)
        differing = _differing(tokens, others)
        slots = slots or differing
        if len(differing) != len(changed) or len(slots) != len(places) or differing != [slots[index] for index in changed]:
            raise _blame(tokenizer, parts, [places[index] for index in changed], number)
        for index in changed:
            label_ids[index].append(others[slots[index]])
    for place, slot, own, ids in zip(places, slots, labels, label_ids, strict=True):
        ids.insert(0, tokens[slot])
        for label, token in zip(own, ids, strict=True):
            if label.strip() not in decode(tokenizer, (token,)):
                raise Refused(
                    f"template.{place}", "invalid_value", f"the label {short(label)} is more than one token here: give another"
                )
    return ReadTemplate(tokens, tuple(slots), tuple(map(tuple, label_ids)), tuple(labels))


def _filled(tokenizer: Tokenizer, parts: Parts, changed: Sequence[int], number: int) -> Ids:
    """Return the tokens with label `number` in the slots `changed`, if they have it, and the first label in all others."""
    chosen, texts = set(changed), list[str]()
    for place, part in enumerate(parts):
        if isinstance(part, str):
            texts.append(part)
        else:
            texts.append(part[number] if place in chosen and number < len(part) else part[0])
    return encode_text(tokenizer, "".join(texts), add_special_tokens=False)


def _differing(tokens: Sequence[int], others: Sequence[int]) -> list[int]:
    """Return the offsets at which the tokens differ; none if their numbers differ."""
    if len(tokens) != len(others):
        return []
    return [offset for offset, pair in enumerate(zip(tokens, others, strict=True)) if pair[0] != pair[1]]


def _blame(tokenizer: Tokenizer, parts: Parts, changed: Sequence[int], number: int) -> Refused:
    """Return the error for label `number` of the slots `changed`, of which one is not a single token."""
    tokens = _filled(tokenizer, parts, (), number)
    for place in changed[:MOST_TRIED]:
        if len(_differing(tokens, _filled(tokenizer, parts, (place,), number))) != 1:
            first, label = parts[place][0], parts[place][number]
            return Refused(
                f"template.{place}",
                "invalid_value",
                f"the labels {short(first)} and {short(label)} must differ in one token in this slot, but do not: give labels "
                "of one token each, with blanks where the tokenizer puts them, such as before a word",
            )
    return Refused(
        "template",
        "invalid_value",
        "the labels of each slot must differ in one token, the same one for all labels: put text between slots",
    )


def _checked(template: object) -> Parts:
    """Return the parts of a template, slots as tuples. Raises Refused if it is not a list of texts and slots."""
    form = 'must be a list of texts and slots, like ["The answer is", [" yes", " no"], "."]'
    parts: Parts = []
    many = listed(template)
    if many is None:
        raise Refused("template", "invalid_type", f"{form}, got {short(template)}")
    for place, part in enumerate(many):
        text = text_of(plain(part))
        own: Any = None if text is not None else listed(part)
        if text is None and (own is None or any(text_of(label) is None for label in own)):
            raise Refused("template", "invalid_type", f"{form}; part {place} is {short(part)}")
        labels = tuple([str(text_of(label)) for label in own or ()])
        if text is None and not 2 <= len({*labels}) == len(labels) <= MOST_LABELS:
            raise Refused(
                f"template.{place}", "invalid_value", f"must have 2 to {MOST_LABELS} different labels, got {short(part)}"
            )
        parts.append(labels if text is None else text)
    if not any(isinstance(part, tuple) for part in parts):
        raise Refused("template", "invalid_value", f"{form}; this one has no slot: {short(template)}")
    return parts
