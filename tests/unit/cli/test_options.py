"""Every option of the command explains itself."""

from dlstep import EngineConfig
from dlstep.cli.options import ENGINE_FIELDS, SAMPLING_FIELDS, SAMPLING_HELP
from dlstep.engine.option_help import field_help


def test_every_option_has_a_help_text() -> None:
    texts = field_help(EngineConfig)
    assert all(texts[field.name] for field in ENGINE_FIELDS)
    assert {field.name for field in SAMPLING_FIELDS} == set(SAMPLING_HELP)
