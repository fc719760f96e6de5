"""Tensors in the safetensors files of a checkpoint, read from their headers alone. A pickle is never opened."""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open

from .digests import FileIdentity, identify
from .reading import RefuseErrors, parse_json, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
READABLE = {"F32": 4, "F16": 2, "BF16": 2}  # dtypes that can be loaded, and the bytes of a number
SIZES = {**READABLE, "F8_E4M3": 1, "I8": 1}  # also of codes, which are loaded with their scales
METADATA = "__metadata__"  # the entry of a header that is no tensor
MOST_FILES = 10_000  # of one checkpoint
LONGEST_HEADER = 100_000_000  # bytes, the limit of the format


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file: `size` bytes of data, which begin `offset` bytes after the header."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    file: Path
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The tensors of a checkpoint by name, the problems of its files, and the files' identities before loading."""

    tensors: dict[str, Stored]
    problems: tuple[str, ...]
    files: tuple[FileIdentity, ...] = ()


def read_contents(folder: Path) -> Contents:
    """Return the tensors in the safetensors files of `folder`. Raises FileNotFoundError if it has no such files."""
    if (folder / SINGLE).is_file():
        file = identify(folder / SINGLE)
        try:
            tensors = read_header(folder / SINGLE)
        except ValueError as error:
            return Contents({}, (str(error),))
        return Contents({stored.name: stored for stored in tensors}, (), (file,))
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
    files = [identify(folder / INDEX)]
    where = _weight_map(folder)
    tensors: dict[str, Stored] = {}
    problems: list[str] = []
    names: dict[str, set[str]] = {}
    for name, file in where.items():
        names.setdefault(file, set()).add(name)
    if len(names) > MOST_FILES:
        raise ValueError(f"its weight_map names {len(names)} files, and at most {MOST_FILES} are read")
    for file, named in sorted(names.items()):
        if Path(file).name != file or Path(file).suffix != ".safetensors":
            problems.append(f"{INDEX} names {file!r}, which is no safetensors file of this folder")
            continue
        try:
            contained = {stored.name: stored for stored in read_header(folder / file)}
            files.append(identify(folder / file))
        except (ValueError, FileNotFoundError) as error:
            problems.append(str(error))
            continue
        problems += [f"{INDEX} places {name} in {file}, which does not hold it" for name in sorted(named - set(contained))]
        problems += [f"{file} holds {name}, for which {INDEX} has no entry" for name in sorted(set(contained) - set(where))]
        tensors |= {name: stored for name, stored in contained.items() if name in named}
    return Contents(tensors, tuple(problems), tuple(files))


def _weight_map(folder: Path) -> dict[str, str]:
    """Return the file of each tensor that the index names. Raises ValueError if it is no index."""
    index = read_json(folder / INDEX)
    where: Any = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(where, dict) or not where or not all(isinstance(file, str) for file in where.values()):
        raise ValueError("it has no weight_map of tensor names to file names")
    return where


def read_header(path: Path) -> list[Stored]:
    """Return the tensors of one safetensors file, in the order of their data.

    Raises FileNotFoundError if the file is missing, and ValueError if it is cut off, damaged or of another format.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: download it again")
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if first[:2] in (b"PK", b"\x80\x02", b"\x80\x04"):
            raise ValueError(f"{path} is a pickle, which may hold code and is not read: convert it to safetensors")
        if size < 8 or (size < 8 + length <= LONGEST_HEADER):
            raise ValueError(f"{path} is cut off in its header, after {size} bytes: download it again")
        if length > LONGEST_HEADER:
            raise ValueError(f"{path} is no safetensors file: convert or download it again")
        content = file.read(length)
    with RefuseErrors(f"{path} has no valid safetensors header, download it again"):
        header: Any = parse_json(content.decode())
        tensors = sorted((_stored(name, header[name], path) for name in header if name != METADATA), key=_place)
    end = max((stored.offset + stored.size for stored in tensors), default=0)
    if size < 8 + length + end:
        raise ValueError(f"{path} is cut off: it has {size} of {8 + length + end} bytes, download it again")
    _check_places(path, tensors, size - 8 - length)
    # The library's own reader, which later loads the data, may find other problems.
    with RefuseErrors(f"{path} is no valid safetensors file, download it again"), safe_open(path, framework="np") as opened:
        opened.keys()
    return tensors


def _place(stored: Stored) -> tuple[int, int]:
    """Return where the data of a tensor begin and end, to sort by."""
    return stored.offset, stored.offset + stored.size


def _check_places(path: Path, tensors: list[Stored], size: int) -> None:
    """Raise ValueError unless the data of the tensors, which are in order, fill `size` bytes without gap or overlap."""
    before, end = "the header", 0
    for stored in tensors:
        if stored.offset != end:
            what = "overlaps" if stored.offset < end else "leaves a gap after"
            raise ValueError(f"{path} is damaged: {stored.name} {what} {before}, download it again")
        before, end = stored.name, stored.offset + stored.size
    if size != end:
        raise ValueError(f"{path} is damaged: {size - end} bytes follow its last tensor, download it again")


def _stored(name: str, facts: dict[str, Any], path: Path) -> Stored:
    """Return the tensor that an entry of a header describes. Raises ValueError if the entry contradicts itself."""
    shape, dtype = tuple(facts["shape"]), str(facts["dtype"])
    begin, end = facts["data_offsets"]
    if not all(type(number) is int for number in (*shape, begin, end)):
        raise ValueError(f"{name} has a shape or offsets that are no integers")
    needed = prod(shape) * SIZES[dtype] if dtype in SIZES else end - begin
    if min(shape, default=0) < 0 or not 0 <= begin <= end or end - begin != needed:
        raise ValueError(f"{name} of shape {list(shape)} and {dtype} has data from byte {begin} to {end}")
    return Stored(name, shape, dtype, path, begin, end - begin)
