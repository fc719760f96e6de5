"""Examples of a document."""

from typing import Any

import pytest

from dlstep.evaluate.documents import drawn

from .answer_suite import AWKWARD, TRAINING


def test_examples_of_a_document_do_not_depend_on_those_beside_it(tmp_path: Any) -> None:
    (tmp_path / "GSM8K_train.json").write_text(str(TRAINING).replace("'", '"'))
    documents = drawn(AWKWARD, 5, tmp_path)
    assert drawn(AWKWARD[3:], 5, tmp_path) == documents[3:] and documents[0].examples != documents[1].examples
    with pytest.raises(ValueError, match=r"shots must be at most 50, the examples of GSM8K_train\.json, got 51"):
        drawn(AWKWARD, 51, tmp_path)
    with pytest.raises(ValueError, match=r"draws 5 worked examples from GSM8K_train\.json.* or choose --shots 0"):
        drawn(AWKWARD, 5, tmp_path / "nowhere")
    (tmp_path / "GSM8K_train.json").write_text('[{"question": "2?"}]')
    with pytest.raises(ValueError, match="must have a question and an answer in each entry, look at 'answer'"):
        drawn(AWKWARD, 1, tmp_path)
