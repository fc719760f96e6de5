"""Values that are built fast differ from usual frozen dataclasses only in their speed."""

from dataclasses import MISSING, FrozenInstanceError, fields, replace
from inspect import Parameter, signature

import pytest

from dlstep.core import Block, Progress, Rows, SequenceState, SoftTokens, Span, SpanSamples, Wanted
from dlstep.strategies.dmax import Softened

CLASSES = [Block, Progress, Rows, SequenceState, Softened, SoftTokens, Span, SpanSamples, Wanted]


@pytest.mark.parametrize("cls", CLASSES)
def test_fast_values_have_the_parameters_of_their_fields(cls):
    for parameter, field in zip(signature(cls).parameters.values(), fields(cls), strict=True):
        assert parameter.name == field.name
        assert parameter.default is (Parameter.empty if field.default is MISSING else field.default)
        assert (parameter.kind is Parameter.KEYWORD_ONLY) == field.kw_only


@pytest.mark.parametrize("cls", CLASSES)
def test_fast_values_hold_their_fields_and_are_frozen(cls):
    given = {field.name: object() for field in fields(cls)}
    value = cls(**given)
    assert type(value) is cls and {name: getattr(value, name) for name in given} == given
    assert replace(value) == value and hash(replace(value)) == hash(value)
    for name in given:
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)
