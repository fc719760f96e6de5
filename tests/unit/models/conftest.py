"""A checkpoint in three shards."""

from pathlib import Path

import pytest

from ...helpers.tiny_families import write_checkpoint


@pytest.fixture
def sharded(tmp_path) -> Path:
    write_checkpoint(tmp_path / "sharded", "sdar", shards=3)
    return tmp_path / "sharded"
