import pytest
from hypothesis import given, settings, strategies as st, HealthCheck
from dlstep import strategies
from dlstep.testing.laws import LAWS
@pytest.mark.parametrize("name", strategies.available())
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_law(law, name, data):
    law(strategies.load(name), data)
