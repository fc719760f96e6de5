"""The table of launch parameters."""

import json
from dataclasses import replace
from pathlib import Path

from benchmarks import tune_kernels


def test_the_table_is_written_as_it_stands(tmp_path: Path) -> None:
    text = tune_kernels.table_path().read_text(encoding="utf-8")
    assert tune_kernels.written(json.loads(text)) == text
    target = tmp_path / "launch.json"
    kept = tune_kernels.Tuned("store_kv", "sm_90", "", 2.0, 2.0, None)
    tune_kernels.write(
        [kept, replace(kept, key="sm_100", us=1.0, parameters={"num_warps": 8})], tune_kernels.table_path(), target
    )
    entries = json.loads(target.read_text(encoding="utf-8"))["store_kv"]
    assert entries["sm_100"] == {"num_warps": 8}
    assert "sm_90" not in entries
