"""Fetch a model by its name, `org/name`, from a Hugging Face hub: tensors, tokenizer and configuration, never code.

`HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` have their usual meaning: address of the hub, access token, folder
of the cache, and no network access.
"""

import re
from pathlib import Path
from typing import Any

# Everything that is read from a checkpoint folder, and nothing that could be executed.
FILES = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "adapter_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"),
    *("chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja"),
)
_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?", re.ASCII)


def is_hub_name(model: str) -> bool:
    """Return whether a model is given by a name on the hub rather than by a path.

    Args:
        model: `org/name`, `org/name@revision` or a path. An existing path is never a name.
    """
    return _NAME.fullmatch(model) is not None and not model.startswith((".", "~")) and not Path(model).exists()


def folder_of(model: str) -> Path:
    """Return the folder of a model, which is downloaded first if it is given by a name on the hub.

    Args:
        model: A path, or a name as `fetched` takes it.

    Raises:
        ValueError: If the model cannot be downloaded, with a remedy.
    """
    return fetched(model) if is_hub_name(model) else Path(model)


def fetched(model: str) -> Path:
    """Return the folder of a model of the hub, after downloading the files that the cache lacks.

    Args:
        model: `org/name`, or `org/name@revision` with a branch, tag or commit.

    Raises:
        ValueError: If the model cannot be downloaded, with a remedy.
    """
    from huggingface_hub import constants, errors, snapshot_download
    from tqdm.auto import tqdm

    class Bar(tqdm):  # pyright: ignore[reportMissingTypeArgument]
        """A bar on terminals only, also where HF_HUB_DISABLE_PROGRESS_BARS hides those of transformers."""

        def __init__(self, *values: Any, **options: Any) -> None:
            super().__init__(*values, **{**options, "disable": None})

    found = _NAME.fullmatch(model)
    assert found is not None, "is_hub_name was asked"
    name, revision = found["repository"], found["revision"]
    try:
        folder = Path(
            snapshot_download(
                name, revision=revision, allow_patterns=[*FILES], ignore_patterns=["*/*.safetensors"], tqdm_class=Bar
            )
        )
    except errors.HFValidationError as error:
        raise ValueError(f"{name} cannot be the name of a model on {constants.ENDPOINT}: {error}") from None
    except errors.GatedRepoError:
        raise ValueError(
            f"{name} is gated: accept its conditions on {constants.ENDPOINT}/{name}, then log in with `hf auth login` or "
            "set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise ValueError(f"{name} has no revision {revision!r} on {constants.ENDPOINT}") from None
    except errors.RepositoryNotFoundError:
        raise ValueError(
            f"{constants.ENDPOINT} has no model {name}, or it is private: check the name, or log in with `hf auth login`"
        ) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        if constants.HF_HUB_OFFLINE:
            cause = "HF_HUB_OFFLINE is set: unset it once to download the model"
        else:
            cause = f"{constants.ENDPOINT} cannot be reached: download the model where it can, or give the path of a folder"
        raise ValueError(f"{model} is not complete in the cache {constants.HF_HUB_CACHE}, and {cause}") from error
    except errors.HfHubHTTPError as error:
        raise ValueError(f"{name} cannot be downloaded from {constants.ENDPOINT}: {error}") from error
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"{name} has no *.safetensors: weights in other formats may hold code, and are not downloaded")
    return folder
