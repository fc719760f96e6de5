"""A fingerprint notices every changed number and byte, and nothing else."""

import shutil
from random import Random

import pytest
import torch
from safetensors.torch import load_file

from dlstep.models import load_checkpoint, read_adapter
from dlstep.models.fingerprint import fingerprint
from dlstep.models.reading import read_header

from ...helpers.files import edit, edit_tensors
from ...helpers.tiny_families import write_checkpoint

# Other values that keep the shapes of the weights; which fields of which family count is tested in `test_configs.py`.
OTHER_FACTS = {
    "rms_norm_eps": 1e-5,
    "rope_theta": 20000.0,
    "max_position_embeddings": 512,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
}


def written(folder):
    write_checkpoint(folder, "sdar", shards=2)
    return folder


def of(folder, **more):
    return fingerprint(load_checkpoint(folder, **more))


def test_every_one_element_change_of_the_weights_is_noticed(tmp_path):
    folder = written(tmp_path / "model")
    checkpoint = load_checkpoint(folder)
    first = fingerprint(checkpoint)
    assert len(first) == 32 and of(folder) == first
    generator = Random(0)
    stored = [tensor for file in sorted(folder.glob("*.safetensors")) for tensor in read_header(file)]
    places = [(tensor, number) for tensor in stored for number in generator.sample(range(tensor.size // 4), 2)]
    seen = {first}
    for tensor, number in places:
        data = tensor.file.read_bytes()
        start = len(data) - sum(each.size for each in stored if each.file == tensor.file) + tensor.offset
        changed = bytearray(data)
        changed[start + 4 * number] ^= 1  # the last bit of one number
        tensor.file.write_bytes(changed)
        seen.add(of(folder, description=checkpoint.description))
        tensor.file.write_bytes(data)
    assert len(places) > 40 and len(seen) == len(places) + 1
    assert of(folder) == first


def test_every_number_of_the_configuration_is_noticed(tmp_path):
    folder = written(tmp_path)
    facts = (folder / "config.json").read_text()
    seen = [of(folder), of(folder, dtype=torch.bfloat16), of(folder, kv_dtype=torch.float8_e4m3fn)]
    assert of(folder, kv_dtype=torch.float32) == seen[0]
    for name, value in OTHER_FACTS.items():
        edit(folder / "config.json", **{name: value})
        seen.append(of(folder))
        (folder / "config.json").write_text(facts)
    assert len(set(seen)) == len(seen), seen
    assert of(folder) == seen[0]


def test_an_equal_checkpoint_elsewhere_has_the_same_fingerprint(tmp_path):
    folder = written(tmp_path / "model")
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "links").mkdir()
    for file in folder.iterdir():  # as in the download cache of Hugging Face, where names lead to hashes
        target = tmp_path / f"{file.name}.blob"
        shutil.copy(file, target)
        (tmp_path / "links" / file.name).symlink_to(target)
    edit(
        tmp_path / "copy" / "config.json",
        _name_or_path="elsewhere",
        transformers_version="4.0",
        torch_dtype="float16",
        unknown=1,
    )
    assert of(folder) == of(tmp_path / "copy") == of(tmp_path / "links")


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_are_noticed_with_every_byte(tmp_path):
    from .test_adapter import noisy_adapter

    reference, _ = write_checkpoint(tmp_path / "model", "sdar")
    noisy_adapter(reference, target_modules=["q_proj"]).save_pretrained(str(tmp_path / "adapter"))
    checkpoint, path = load_checkpoint(tmp_path / "model"), tmp_path / "adapter"

    def now(*, merged=True):
        return fingerprint(checkpoint, read_adapter(path), merged=merged)

    seen = [fingerprint(checkpoint), now(), now(merged=False)]
    for name in load_file(path / "adapter_model.safetensors"):
        edit_tensors(path / "adapter_model.safetensors", lambda tensors, name=name: tensors[name].view(-1)[-1:].add_(1e-6))
        seen.append(now())
    edit(path / "adapter_config.json", lora_alpha=99)
    assert len({*seen, now()}) == len(seen) + 1
