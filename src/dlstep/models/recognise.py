"""Recognition of a checkpoint's family by its config.json; if several match, by tensors, other fields and names."""

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .families import FAMILIES, Family, Signs
from .reading import read_object
from .shards import INDEX, SINGLE, read_contents


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the content of config.json. Raises FileNotFoundError if the folder or the file is missing."""
    if not folder.is_dir():
        raise FileNotFoundError(f"checkpoint folder {str(folder)!r} does not exist: give the path of a local folder")
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no config.json: it is not a checkpoint folder")
    return read_object(path)


def name_of(folder: Path) -> str:
    """Return the folder's name, or `org/name` for a folder in the cache of a hub."""
    if folder.parent.name == "snapshots" and (parts := folder.parent.parent.name.split("--"))[0] == "models":
        return "/".join(parts[1:])
    return folder.name


def recognise(folder: Path, facts: dict[str, Any], model_name: str | None = None) -> Family:
    """Return the family that `model_name` names, or if it is None, the family of the checkpoint folder.

    Raises ValueError for an unknown name, and for a folder that fits no family.
    """
    if model_name is not None:
        if model_name not in FAMILIES:
            near = get_close_matches(model_name, FAMILIES, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"model_name={model_name!r} is unknown: choose from {', '.join(FAMILIES)}{meant}")
        family = FAMILIES[model_name]
    else:
        family = _detect(folder, facts)
    if family.qkv_biased is not None and facts.get("include_qkv_bias"):
        return replace(family, network=family.qkv_biased)
    return family


def _detect(folder: Path, facts: dict[str, Any]) -> Family:
    """Return the family that fits config.json.

    If several fit, return the one whose tensor the files contain, else the first whose field is true in config.json,
    else the first that the checkpoint's name matches, else the first that requires none of these.
    """
    named = list(_class_names(facts))
    candidates = [family for family in FAMILIES.values() if _fits(family.signs, facts.get("model_type"), named)]
    if not candidates:
        raise ValueError(
            f"{folder} is of model_type {facts.get('model_type')!r:.80} and architecture "
            f"{', '.join(named)[:160] or 'none'}, which is "
            f"not supported: choose a checkpoint of {', '.join(FAMILIES)}, or name one of these as model_name if it is "
            "built like them (code that a checkpoint brings is never run)"
        )
    if (by_tensor := [family for family in candidates if family.signs.tensor]) and _holds(folder, by_tensor[0]):
        return by_tensor[0]
    if stating := [family for family in candidates if family.signs.fact and facts.get(family.signs.fact) is True]:
        return stating[0]
    names = " ".join(_published_names(folder, facts))
    for family in candidates:
        if family.signs.published and re.search(family.signs.published, names, re.IGNORECASE):
            return family
    return next((family for family in candidates if not family.signs.published and not family.signs.tensor), candidates[0])


def _fits(signs: Signs, model_type: object, named: list[str]) -> bool:
    """Return whether config.json, with this `model_type` and these class names, fits the signs."""
    parts = [part for name in named for part in name.split(".")]
    return model_type in signs.model_types or any(re.fullmatch(sign, part) for sign in signs.classes for part in parts)


def _class_names(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the class names in config.json; a class of the folder's own code has its module's name in front."""
    named, own = facts.get("architectures"), facts.get("auto_map")
    names = [*(named if isinstance(named, list) else []), *(own.values() if isinstance(own, dict) else [])]
    yield from (name for name in names if isinstance(name, str))


def _published_names(folder: Path, facts: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the checkpoint: that in config.json, its folder's, and that of a download cache."""
    if isinstance(known := facts.get("_name_or_path"), str):
        yield known
    yield name_of(folder.resolve())
    yield from (part for part in folder.absolute().parts if part.startswith("models--"))


def _holds(folder: Path, family: Family) -> bool:
    """Return whether the files hold a tensor that is a sign of this family; False if there are no files."""
    if not ((folder / SINGLE).is_file() or (folder / INDEX).is_file()):
        return False
    return any(re.fullmatch(family.signs.tensor or "", name) for name in read_contents(folder).tensors)
