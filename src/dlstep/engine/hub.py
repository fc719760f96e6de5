"""Fetch a model by its name, `org/name`, from a Hugging Face hub: tensors, tokenizer and configuration, never code.

`HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` have their usual meaning: address of the hub, access token, folder
of the cache, and no network access.
"""

import re
from importlib import import_module
from json import JSONDecodeError
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
    """Return the folder of a model. If the model is given by a name on the hub, download it first.

    Args:
        model: A path, or a name as `fetched` takes it.

    Raises:
        ValueError: If the model cannot be downloaded, with a remedy.
    """
    return fetched(model) if is_hub_name(model) else Path(model)


def fetched(model: str) -> Path:
    """Return the folder of a model on the hub, after downloading the files that are missing from the cache.

    Args:
        model: `org/name`, or `org/name@revision` with a branch, tag or commit.

    Raises:
        ValueError: If the model cannot be downloaded, with a remedy.
    """
    from huggingface_hub import constants, errors

    # The HTTP library of huggingface_hub: httpx in version 1, httpx2 in version 2.
    client = import_module(errors.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])
    there = f"there is no folder {model!r} in {Path.cwd()}"

    found = _NAME.fullmatch(model)
    assert found is not None, "callers check is_hub_name first"
    name, revision = found["repository"], found["revision"]
    silent = False
    try:
        silent = not constants.HF_HUB_OFFLINE and _is_silent(name, revision, client)
        folder = _downloaded(name, revision, local_files_only=silent)
    except errors.HFValidationError as error:
        raise ValueError(f"{name} cannot be the name of a model on {constants.ENDPOINT}: {error}; {there}") from None
    except errors.GatedRepoError:
        raise ValueError(
            f"{name} is gated: accept its conditions on {constants.ENDPOINT}/{name}, then log in with `hf auth login` or "
            "set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise ValueError(f"{name} has no revision {revision!r} on {constants.ENDPOINT}") from None
    except errors.RepositoryNotFoundError:
        raise ValueError(
            f"{constants.ENDPOINT} has no model {name}, or it is private: check the name, or log in with `hf auth login`; "
            f"{there}"
        ) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        cause = _cause(silent=silent)
        raise ValueError(f"{model} is not complete in the cache {constants.HF_HUB_CACHE}, and {cause}; {there}") from error
    except (client.HTTPError, client.InvalidURL) as error:
        raise ValueError(f"{name} cannot be downloaded from {constants.ENDPOINT}: {error}; check HF_ENDPOINT") from error
    except JSONDecodeError as error:  # for example, because the network answered with its login page
        raise ValueError(
            f"{constants.ENDPOINT} does not answer like a hub: check the network and HF_ENDPOINT ({error})"
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"{name} has no *.safetensors: weights in other formats may hold code, and are not downloaded")
    return folder


def _downloaded(name: str, revision: str | None, *, local_files_only: bool) -> Path:
    """Return the folder of a model in the cache, after downloading the files that are missing from it."""
    from huggingface_hub import snapshot_download

    from ..views.progress_bars import download_bars

    with download_bars() as bar:
        folder = snapshot_download(
            name,
            revision=revision,
            local_files_only=local_files_only,
            tqdm_class=bar,
            allow_patterns=[*FILES],
            ignore_patterns=["*/*.safetensors"],
        )
    return Path(folder)


def _cause(*, silent: bool) -> str:
    """Return why a model cannot be downloaded, with a remedy."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set: unset it once to download the model"
    late = f"does not answer within {constants.HF_HUB_ETAG_TIMEOUT} s (HF_HUB_ETAG_TIMEOUT)"
    return (
        f"{constants.ENDPOINT} {late if silent else 'cannot be reached'}: check the network and HF_ENDPOINT, or download the "
        "model where the hub can be reached, and set HF_HUB_OFFLINE=1"
    )


def _is_silent(name: str, revision: str | None, client: Any) -> bool:
    """Return whether the hub fails to answer within the deadline. Other failures are left to the download.

    This check is needed because `snapshot_download` sets no deadline for its first request. `client` is
    the HTTP library.
    """
    from huggingface_hub import HfApi, constants

    try:
        HfApi().model_info(name, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except client.TimeoutException:
        return True
    except client.HTTPError:
        return False
    return False
