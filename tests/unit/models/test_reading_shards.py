"""Files of tensors that are damaged."""

import json
import re

import pytest

from dlstep.models import load_checkpoint
from dlstep.models.reading import read_contents

SHARD, INDEX = "model-00002-of-00003.safetensors", "model.safetensors.index.json"
CUT = f"{SHARD} is cut off or damaged, download it again"


def content(change, file=SHARD):
    """Another content of a file."""
    return lambda folder: (folder / file).write_bytes(change((folder / file).read_bytes()))


def index(change):
    """Another place of some tensors in the index."""

    def changed(whole):
        facts = json.loads(whole)
        change(facts["weight_map"])
        return json.dumps(facts).encode()

    return content(changed, INDEX)


def last_entry(change, more=0):
    """Another entry of a shard's last tensor, and more bytes before its data."""

    def changed(whole):
        data = 8 + int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8:data])
        last = max(
            (entry for name, entry in header.items() if name != "__metadata__"), key=lambda entry: entry["data_offsets"][0]
        )
        begin = data + last["data_offsets"][0]
        change(last)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + whole[data:begin] + bytes(more) + whole[begin:]

    return content(changed)


DAMAGES = {
    "data cut off": (content(lambda whole: whole[:-1]), CUT),
    "a gap": (last_entry(lambda entry: entry.update(data_offsets=[each + 8 for each in entry["data_offsets"]]), 8), CUT),
    "another size": (last_entry(lambda entry: entry["shape"].append(2)), CUT),
    "no shard": (lambda folder: (folder / SHARD).unlink(), f"{SHARD} is missing: download it again"),
    "a tensor without entry": (
        index(lambda places: places.pop("model.norm.weight")),
        f"holds model.norm.weight, for which {INDEX} has no entry",
    ),
    "an entry without tensor": (
        index(lambda places: places.update({"model.ghost": SHARD})),
        f"places model.ghost in {SHARD}, which does not hold it",
    ),
    "no index": (content(lambda whole: b"{", INDEX), f"{INDEX} is not the index of a checkpoint: "),
    "an empty index": (content(lambda whole: b'{"weight_map": []}', INDEX), "of a checkpoint: it has no weight_map"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_refused(name, sharded):
    assert read_contents(sharded).problems == ()
    damage, message = DAMAGES[name]
    damage(sharded)
    with pytest.raises(ValueError, match=re.escape(message)):
        load_checkpoint(sharded)
