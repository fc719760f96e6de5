"""Fetch a model by its name, `org/name`, from a Hugging Face hub: tensors, tokenizer and configuration, never code.

`HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` have their usual meaning: address of the hub, access token, folder
of the cache, and no network access.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text.detokenize import TOKENIZER_FILES

if TYPE_CHECKING:
    from ..models.reading import Contents

# Everything that is read from a checkpoint folder, and nothing that could be executed.
CONFIGS = ("config.json", "generation_config.json", "adapter_config.json")
FILES = (*CONFIGS, *TOKENIZER_FILES, "*.safetensors", "*.safetensors.index.json")
ELSEWHERE = "*/*.safetensors"  # such as optimizer states
_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?", re.ASCII)


def is_hub_name(model: str) -> bool:
    """Return whether a model is given by a name on the hub rather than by a path.

    Args:
        model: `org/name`, `org/name@revision` or a path. An existing path is never a name.
    """
    return _NAME.fullmatch(model) is not None and not model.startswith((".", "~")) and not Path(model).exists()


def source_of(model: str) -> "Path | HubModel":
    """Return the folder of a model, or a `HubModel` if the model is given by a name on the hub.

    Args:
        model: A path, or a name as `HubModel` takes it.

    Raises:
        ValueError: If the model cannot be downloaded, with a remedy.
    """
    return HubModel(model) if is_hub_name(model) else Path(model)


def folder_of(model: str) -> Path:
    """Return the folder of a model after downloading all of its files.

    Args:
        model: A path, or a name as `HubModel` takes it.

    Raises:
        ValueError: If the model cannot be downloaded, with a remedy.
    """
    source = source_of(model)
    return source if isinstance(source, Path) else source.fetch()


class HubModel:
    """A model on the hub. Its files are downloaded into the hub's cache when they are needed: config.json first.

    Args:
        model: `org/name`, or `org/name@revision` with a branch, tag or commit.

    Raises:
        ValueError: If the model cannot be downloaded, or has no safetensors, with a remedy.
    """

    def __init__(self, model: str) -> None:
        from huggingface_hub import constants

        found = _NAME.fullmatch(model)
        assert found is not None, "callers check is_hub_name first"
        self._name: str = found["repository"]
        self._revision: str | None = found["revision"]
        self._contents: Contents | None = None
        self._silent = False
        with self._refusing():
            self._sizes = {} if constants.HF_HUB_OFFLINE else self._listed()
        if self._sizes and not any(name.endswith(".safetensors") for name in self._sizes):
            raise ValueError(
                f"{self._name} has no *.safetensors: weights in other formats may hold code, and are not downloaded"
            )
        self.path = self.fetch(*CONFIGS)
        self._revision = self.path.name  # the commit, so that all files belong together

    @property
    def missing_bytes(self) -> int:
        """Size of the files that are not in the cache; 0 if the hub does not answer."""
        return sum(size for name, size in self._sizes.items() if not (self.path / name).exists())

    def fetch(self, *patterns: str) -> Path:
        """Download files that are missing from the cache, and return their folder.

        Args:
            patterns: Patterns of file names, as for `fnmatch`; none: all files that are read from a checkpoint.

        Raises:
            ValueError: If the files cannot be downloaded, with a remedy.
        """
        from huggingface_hub import snapshot_download

        from ..views.progress_bars import download_bars

        with self._refusing(), download_bars() as bar:
            # hf_hub_download would not store the list of files in the cache. Without the list, a later call without a
            # network would treat a folder that has only config.json as complete.
            folder = snapshot_download(
                self._name,
                revision=self._revision,
                local_files_only=self._silent,
                tqdm_class=bar,
                allow_patterns=[*(patterns or FILES)],
                ignore_patterns=[ELSEWHERE],
            )
        return Path(folder)

    def contents(self) -> "Contents":
        """Return the tensors in the files, from headers that are read on the hub if the cache lacks a file.

        Raises ValueError if a file is neither in the cache nor on the hub, or a header cannot be read.
        """
        from huggingface_hub import HfApi

        from ..models.reading import Stored, join_headers, read_contents, refuse_errors

        if not self._sizes:
            self.fetch()
        if all((self.path / name).exists() for name in self._sizes if name.endswith(".safetensors")):
            return read_contents(self.path)
        if self._contents is None:
            with refuse_errors(f"the headers of the weights of {self._name} cannot be read"), self._refusing():
                found = HfApi().get_safetensors_metadata(self._name, revision=self._revision)

            def header(path: Path) -> list[Stored]:
                tensors = found.files_metadata[path.name].tensors
                return [
                    Stored(name, tuple(its.shape), its.dtype, path, begin, end - begin)
                    for name, its in tensors.items()
                    for begin, end in (its.data_offsets,)
                ]

            self._contents = join_headers(self.path, found.weight_map, header)
        return self._contents

    def _listed(self) -> dict[str, int]:
        """Return the size of each file that may be downloaded; {} if the hub fails, which the download then reports.

        Set `_silent` if the hub does not answer within the deadline: `snapshot_download` sets no deadline for its first
        request.
        """
        from huggingface_hub import HfApi, constants
        from huggingface_hub.utils import filter_repo_objects

        client = _client()
        try:
            found = HfApi().model_info(
                self._name, revision=self._revision, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
            )
        except client.TimeoutException:
            self._silent = True
            return {}
        except client.HTTPError:
            return {}
        sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
        return {name: sizes[name] for name in filter_repo_objects(sizes, allow_patterns=[*FILES], ignore_patterns=ELSEWHERE)}

    @contextmanager
    def _refusing(self) -> Generator[None]:
        """Raise a ValueError with a remedy for an error of the hub inside the context."""
        from huggingface_hub import constants, errors

        client, name, revision = _client(), self._name, self._revision
        there = f"there is no folder {name!r} in {Path.cwd()}"
        try:
            yield
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
            cause = _cause(silent=self._silent)
            raise ValueError(f"{name} is not complete in the cache {constants.HF_HUB_CACHE}, and {cause}; {there}") from error
        except (client.HTTPError, client.InvalidURL, JSONDecodeError) as error:  # no JSON: the login page of a network
            message = f"{name} cannot be downloaded from {constants.ENDPOINT}: {error}; check the network and HF_ENDPOINT"
            raise ValueError(message) from error


def _client() -> Any:
    """Return the HTTP library of huggingface_hub: httpx in version 1, httpx2 in version 2."""
    from huggingface_hub import errors

    return import_module(errors.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])


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
