"""Files of adapters: what is missing, not supported or not installed is told by name."""

import pytest

from ...helpers.files import edit
from .test_adapter import CONFIG, case, saved

# peft asks networks for this when it wraps them.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"peft_type": "IA3"}, "has peft_type 'IA3': only LORA is supported"),
        ({"fan_in_fan_out": True}, "not supported: fan_in_fan_out=True"),
        ({"use_dora": True}, "not supported: use_dora=True"),
        ({"lora_bias": True}, "not supported: lora_bias=True"),
        ({"target_parameters": ["experts.down_proj"]}, "not supported: target_parameters="),
        ({"a_new_option": {"x": 1}}, "not supported: a_new_option="),
        ({"init_lora_weights": "pissa"}, "not supported: init_lora_weights='pissa'"),
        ({"bias": "some"}, "not supported: bias='some'"),
        ({"target_modules": None}, "not supported: target_modules=None"),
    ],
)
def test_options_that_are_not_supported_are_named(changes, message, tmp_path):
    saved(tmp_path, "dream", target_modules=["q_proj"])
    edit(tmp_path / CONFIG, **changes)
    with pytest.raises(ValueError, match=message):
        case("dream").applied(tmp_path, merge=True)


def test_a_folder_without_an_adapter_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no adapter_config\.json"):
        case("dream").applied(tmp_path, merge=True)
    saved(tmp_path, "dream", target_modules=["q_proj"])
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"adapter_model\.bin may hold code"):
        case("dream").applied(tmp_path, merge=True)
