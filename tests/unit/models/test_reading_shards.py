"""Files of tensors that are damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlstep.models import load_checkpoint
from dlstep.models.reading import read_contents


def shard(folder: Path) -> Path:
    return sorted(folder.glob("model-*.safetensors"))[1]


def cut_data(folder: Path) -> None:
    path = shard(folder)
    path.write_bytes(path.read_bytes()[:-1])


def cut_header(folder: Path) -> None:
    path = shard(folder)
    path.write_bytes(path.read_bytes()[:20])


def spoil_header(folder: Path) -> None:
    path = shard(folder)
    path.write_bytes(path.read_bytes().replace(b'{"', b"[[", 1))


def remove_shard(folder: Path) -> None:
    shard(folder).unlink()


def pickle_shard(folder: Path) -> None:
    shard(folder).write_bytes(b"PK\x03\x04" + bytes(100))


def edit_index(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def edit_header(folder: Path, change: Callable[[dict[str, Any], str], int]) -> None:
    """Change the entry of a shard's last tensor; `change` says how many bytes go before its data."""
    path = shard(folder)
    content = path.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:data])
    last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    begin = data + header[last]["data_offsets"][0]
    more = bytes(change(header[last], last))
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[data:begin] + more + content[begin:])


def leave_gap(folder: Path) -> None:
    def change(entry: dict[str, Any], _: str) -> int:
        entry["data_offsets"] = [offset + 8 for offset in entry["data_offsets"]]
        return 8

    edit_header(folder, change)


def give_other_size(folder: Path) -> None:
    def change(entry: dict[str, Any], _: str) -> int:
        entry["shape"] = [*entry["shape"], 2]
        return 0

    edit_header(folder, change)


def drop_entry(folder: Path) -> None:
    edit_index(folder, lambda where: where.pop("model.norm.weight"))


def false_entry(folder: Path) -> None:
    edit_index(folder, lambda where: where.update({"model.ghost": next(iter(where.values()))}))


def spoil_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{")


def empty_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')


DAMAGES = {
    cut_data: r"model-00002-of-00003\.safetensors is cut off or damaged, download it again",
    cut_header: r"model-00002-of-00003\.safetensors is cut off or damaged, download it again",
    spoil_header: r"model-00002-of-00003\.safetensors is cut off or damaged, download it again",
    leave_gap: r"model-00002-of-00003\.safetensors is cut off or damaged, download it again",
    give_other_size: r"model-00002-of-00003\.safetensors is cut off or damaged, download it again",
    remove_shard: r"model-00002-of-00003\.safetensors is missing: download it again",
    pickle_shard: r"model-00002-of-00003\.safetensors is cut off or damaged, download it again",
    drop_entry: r"holds model\.norm\.weight, for which model\.safetensors\.index\.json has no entry",
    false_entry: r"places model\.ghost in model-\d+-of-00003\.safetensors, which does not hold it",
    spoil_index: r"is not the index of a checkpoint: .*: download it again",
    empty_index: r"is not the index of a checkpoint: it has no weight_map",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_files_are_refused(damage: Any, sharded: Path) -> None:
    assert read_contents(sharded).problems == ()
    damage(sharded)
    with pytest.raises(ValueError, match=DAMAGES[damage]):
        load_checkpoint(sharded)
