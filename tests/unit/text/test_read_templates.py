"""Templates of reads: labels are one token each in their place, or the template is refused."""

import pytest
from hypothesis import given, strategies as st

from dlstep.text.read_templates import MOST_LABELS, encode_template
from training.tokenizer import build_tokenizer

from ...helpers.refusals import refused

TOKENIZER = build_tokenizer()
LABELS = st.lists(st.sampled_from([*"0123456789"]), min_size=2, unique=True)
TEXT = st.sampled_from(["Max has ", " shells", "=", ". ", "\n"])


@given(parts=st.lists(TEXT | LABELS, min_size=1, max_size=6), numbers=st.data())
def test_slots_are_where_the_labels_are(parts, numbers):
    parts = [each for part in parts for each in ((part, " and ") if isinstance(part, list) else (part,))]
    if not any(isinstance(part, list) for part in parts):
        parts.append(["0", "1"])
    template = encode_template(TOKENIZER, parts)
    slots = [part for part in parts if isinstance(part, list)]
    assert template.labels == tuple(map(tuple, slots)) and len(template.slots) == len(slots)
    chosen = [numbers.draw(st.integers(0, len(labels) - 1)) for labels in slots]
    tokens = list(template.tokens)
    for slot, ids, label in zip(template.slots, template.label_ids, chosen, strict=True):
        tokens[slot] = ids[label]
    taken = iter([labels[label] for labels, label in zip(slots, chosen, strict=True)])
    text = "".join([part if isinstance(part, str) else next(taken) for part in parts])
    assert tuple(tokens) == tuple(TOKENIZER.encode(text, add_special_tokens=False))
    assert {offset for offset, _ in template.pinned} == {*range(len(tokens))} - {*template.slots}
    assert len(template.padded_ids) == len(slots) * max(map(len, slots))


@pytest.mark.parametrize(
    "template, field",
    [
        ("53", "template"),
        ([], "template"),
        (["a", "b"], "template"),
        ([["92", 3]], "template"),
        ([3], "template"),
        (["a", ["92"]], "template.1"),
        ([["92", "92"]], "template.0"),
        ([[str(number) for number in range(MOST_LABELS + 1)]], "template.0"),
        (["53+39=", ["92", "92 shells"], "."], "template.1"),
        (["53+39=", ["92", ""], "."], "template.1"),
        (["53+39=", ["zq", "zw"], "."], "template.1"),
        (["53+39=", ["1", "2"], ["3", "zq"]], "template.2"),
        (["53+39=", ["zq", "wq"], "."], "template.1"),
        (["53+39=", ["zq", "wq", "zw"], "."], "template"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused(template, field):
    wrong_type = template in ("53", [3], [["92", 3]])
    with refused(field, "invalid_type" if wrong_type else "invalid_value"):
        encode_template(TOKENIZER, template)


def test_many_slots_and_labels_take_few_encodings():
    count = 0

    class Counted:
        def __getattr__(self, name):
            return getattr(TOKENIZER, name)

        def encode(self, *given, **options):
            nonlocal count
            count += 1
            return TOKENIZER.encode(*given, **options)

    tokenizer = Counted()
    assert len(encode_template(tokenizer, [["1", "2", "3"], " "] * 80).slots) == 80
    assert count == 3
    with pytest.raises(ValueError, match="must differ in one token"):
        encode_template(tokenizer, [*[["1", "2"], " "] * 80, ["1", "22"]])
    assert count < 25
