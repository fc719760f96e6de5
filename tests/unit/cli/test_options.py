"""Every option of the command explains itself."""

from dlstep import EngineConfig, SamplingParams
from dlstep.cli.options import ENGINE_FIELDS
from dlstep.engine.option_help import field_help


def test_every_option_has_a_help_text() -> None:
    texts = field_help(EngineConfig)
    assert all(texts[field.name] for field in ENGINE_FIELDS)
    assert all(field_help(SamplingParams).values())
