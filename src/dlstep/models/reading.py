"""Read the files of a checkpoint: JSON files, and headers of safetensors files. A pickle is never opened.

Each failure becomes a ValueError that names the file.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open

from ..core import Json, Texts

LARGEST_JSON = 64 << 20  # bytes
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
READABLE = ("F32", "F16", "BF16")  # dtypes that can be loaded
METADATA = "__metadata__"  # the entry of a header that is no tensor


@contextmanager
def refuse_errors(what: str) -> Generator[None]:
    """Raise a ValueError that begins with `what` for an error of a library inside the context.

    A panic of a library written in Rust counts as an error. Running out of memory, interrupts and missing files pass through.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ValueError(f"{what}: {describe_error(error)}") from error
        raise


def describe_error(error: BaseException) -> str:
    """Return an error's message on one line, after the error's class if the message alone would be unclear."""
    # After its first line, the message of a torch error lists stack frames.
    lines = str(error).strip().splitlines()[: 1 if isinstance(error, RuntimeError) else None]
    text = " ".join(" ".join(lines).split())
    return (
        text
        if isinstance(error, ValueError | SafetensorError | StrictDataclassError | re.error) and text
        else f"{type(error).__name__} {text}".strip()
    )


def check_size(path: Path) -> None:
    """Raise ValueError for a file that is too large."""
    if (size := path.stat().st_size) > LARGEST_JSON:
        raise ValueError(f"{path} has {size} bytes, and at most {LARGEST_JSON} are read: check that it is the right file")


def read_object(path: Path) -> Json:
    """Return the object that a JSON file holds. Raises ValueError for any other content and for a file that is too large."""
    check_size(path)
    with refuse_errors(f"{path} is no JSON"):
        value = json.loads(path.read_text("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


Shape = tuple[int, ...]


class Stored(NamedTuple):
    """A tensor in a safetensors file: `size` bytes of data, which begin `offset` bytes after the header."""

    name: str
    shape: Shape
    dtype: str
    file: Path
    offset: int
    size: int


class Contents(NamedTuple):
    """The tensors of a checkpoint by name, the problems of its files, and the files."""

    tensors: dict[str, Stored]
    problems: Texts
    files: tuple[Path, ...] = ()


@runtime_checkable
class Source(Protocol):
    """The files of a checkpoint. Those that are not yet in the folder are downloaded when they are needed."""

    @property
    def path(self) -> Path:
        """The folder. It has config.json, if the checkpoint has one."""
        ...

    @property
    def missing_bytes(self) -> int:
        """Size of the files that are not in the folder."""
        ...

    def fetch(self, *patterns: str) -> object:
        """Download the files whose names match one of the patterns, or all files without patterns."""

    def contents(self) -> Contents:
        """Return the tensors in the checkpoint's files, read from the headers alone, as `read_contents` does."""
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """A checkpoint in a local folder, which has all of its files."""

    path: Path
    missing_bytes: int = 0

    def fetch(self, *patterns: str) -> None:
        """Do nothing."""

    def contents(self) -> Contents:
        """Return the tensors in the folder's files."""
        return read_contents(self.path)


def source_at(path: "str | Path | Source") -> Source:
    """Return the source of a checkpoint that is given as its folder or as a source."""
    return Folder(Path(path).expanduser()) if isinstance(path, str | Path) else path


def read_contents(folder: Path) -> Contents:
    """Return the tensors in the safetensors files of `folder`. Raises FileNotFoundError if it has no such files."""
    if (folder / SINGLE).is_file():
        try:
            tensors = read_header(folder / SINGLE)
        except ValueError as error:
            return Contents({}, (str(error),))
        return Contents({stored.name: stored for stored in tensors}, (), (folder / SINGLE,))
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{folder} holds neither {SINGLE} nor {INDEX}{advice_on_pickles(folder)}")
    try:
        return _read_index(folder)
    except ValueError as error:
        return Contents({}, (f"{folder / INDEX} is not the index of a checkpoint: {error}: download it again",))


def advice_on_pickles(folder: Path) -> str:
    """Return advice about pickle files in the folder; empty if there are none."""
    others = sorted({path.name for pattern in PICKLES for path in folder.glob(pattern)})
    if others:
        return f" ({', '.join(others)} may hold code and is not read: convert it to safetensors)"
    if formats := sorted({path.name for path in folder.glob("*.gguf")}):
        return f" ({', '.join(formats)} is not read: give the folder of the model in transformers' format)"
    return ""


def _read_index(folder: Path) -> Contents:
    """Return the tensors of all shards that the index names, and how the shards differ from the index."""
    where: Any = read_object(folder / INDEX).get("weight_map")
    if not isinstance(where, dict):
        raise ValueError("it has no weight_map of tensor names to file names")
    return join_headers(folder, where, read_header)


def join_headers(folder: Path, where: Mapping[str, str], header: Callable[[Path], list[Stored]]) -> Contents:
    """Return the tensors of all shards that an index names, and how the shards differ from the index.

    Args:
        folder: The checkpoint folder.
        where: File name of each tensor by the tensor's name, as the index states it.
        header: Function that returns the tensors of a file, as `read_header` does.
    """
    files = [folder / INDEX]
    tensors: dict[str, Stored] = {}
    problems: list[str] = []
    names: dict[str, set[str]] = {}
    for name, file in where.items():
        names.setdefault(file, set()).add(name)
    for file, named in sorted(names.items()):
        try:
            contained = {stored.name: stored for stored in header(folder / file)}
            files.append(folder / file)
        except (ValueError, FileNotFoundError) as error:
            problems.append(str(error))
            continue
        problems += [f"{INDEX} places {name} in {file}, which does not hold it" for name in sorted(named - set(contained))]
        problems += [f"{file} holds {name}, for which {INDEX} has no entry" for name in sorted(set(contained) - set(where))]
        tensors |= {name: stored for name, stored in contained.items() if name in named}
    return Contents(tensors, tuple(problems), tuple(files))


def read_header(path: Path) -> list[Stored]:
    """Return the tensors of one safetensors file.

    Raises FileNotFoundError if the file is missing, and ValueError if it is damaged or of another format.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: download it again")
    # The library checks the header, and that the data of the tensors have the stated sizes and fill the file without gaps.
    with refuse_errors(f"{path} is cut off or damaged, download it again"), safe_open(path, framework="np"):
        with path.open("rb") as file:
            header: Json = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return [_stored(name, facts, path) for name, facts in header.items() if name != METADATA]


def _stored(name: str, facts: Json, path: Path) -> Stored:
    """Return the tensor that an entry of a header describes."""
    begin, end = facts["data_offsets"]
    return Stored(name, tuple(facts["shape"]), facts["dtype"], path, begin, end - begin)
