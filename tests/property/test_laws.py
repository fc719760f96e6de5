"""Every law of the engine, for every strategy there is."""

import pytest
from hypothesis import given, strategies as st

from dlstep import strategies
from dlstep.testing.laws import LAWS


@pytest.mark.parametrize("name", strategies.available())
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@given(data=st.data())
def test_law(law, name, data):
    law(strategies.load(name), data)
