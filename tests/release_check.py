"""Check the wheel and the source archive of a release: one version everywhere, the right files, a small size.

`make release-check` builds both and runs this on their folder. With `TAG=v1.2.3`, it also
checks the tag and the date in the changelog.
"""

import re
import sys
import tarfile
from collections.abc import Collection, Iterator, Mapping
from configparser import ConfigParser
from email.parser import BytesParser
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
MOST_BYTES = 820_000  # compressed size of all files of the wheel except the embedded weights
COMMANDS = ("dlstep", "dlstep-lm-eval")
FOLDERS = ("benchmarks", "configs", "deploy", "docs", "examples", "notebooks", "src", "tests", "training")
FILES = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO", "README.md", "SECURITY.md")


def version_faults(version: str, changelog: str, citation: str, tag: str = "") -> Iterator[str]:
    """Yield what contradicts the version of the package."""
    heading = re.search(r"^## (\S+)(.*)", changelog, re.MULTILINE)
    if heading is None or heading[1] != version:
        yield f"CHANGELOG.md begins with {heading and heading[1]}, the package has version {version}"
    if f"\nversion: {version}\n" not in citation:
        yield f"CITATION.cff has no line `version: {version}`"
    if tag and tag != f"v{version}":
        yield f"the tag is {tag}, and must be v{version}"
    if tag and heading and not re.fullmatch(r" \(\d{4}-\d\d-\d\d\)", heading[2]):
        yield f"the heading of CHANGELOG.md must end with the date of the release, as in `## {version} (2030-01-31)`"


def wheel_faults(sizes: Mapping[str, int], entry_points: str) -> Iterator[str]:
    """Yield what is wrong with the files of a wheel, given their compressed sizes."""
    for name in sizes:
        top, *_ = path = PurePosixPath(name).parts
        if top not in ("dlstep", "dlstep_command.py", "dlstep_kernels") and not top.endswith(".dist-info"):
            yield f"{name} is outside of the packages"
        if {"tests", "training", "benchmarks"} & {*path} or path[-1].startswith(("test_", "README")):
            yield f"{name} is not for users"
    for end in ("dlstep/py.typed", "dlstep_kernels/__init__.py", ".dist-info/licenses/LICENSE"):
        if not any(name.endswith(end) for name in sizes):
            yield f"{end} is missing"
    parser = ConfigParser()
    parser.read_string(entry_points)
    scripts = dict(parser["console_scripts"]) if parser.has_section("console_scripts") else {}
    if tuple(sorted(scripts)) != COMMANDS:
        yield f"the commands are {', '.join(sorted(scripts))}, and must be {', '.join(COMMANDS)}"
    for target in scripts.values():
        module = target.partition(":")[0].replace(".", "/")
        if not {f"{module}.py", f"{module}/__init__.py"} & {*sizes}:
            yield f"the command {target} has no module"
    if (total := small_bytes(sizes)) > MOST_BYTES:
        yield f"the files other than the embedded weights have {total:,} bytes, more than {MOST_BYTES:,}"


def small_bytes(sizes: Mapping[str, int]) -> int:
    """Return the compressed bytes of all files of a wheel except weights."""
    return sum(size for name, size in sizes.items() if not name.endswith(".safetensors"))


def sdist_faults(names: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the files of a source archive. `names` omit its top folder."""
    missing = [*({*FOLDERS} - {name.partition("/")[0] for name in names}), *({*FILES} - {*names})]
    if missing:
        yield f"the source archive lacks {', '.join(sorted(missing))}"
    for name in names:
        if {".git", ".venv", "__pycache__", "dist", "build"} & {*PurePosixPath(name).parts}:
            yield f"{name} does not belong in the source archive"


def read_wheel(wheel: Path) -> tuple[dict[str, int], str, str]:
    """Return the compressed sizes of a wheel's files, its entry points, and its version."""
    with ZipFile(wheel) as opened:
        sizes = {info.filename: info.compress_size for info in opened.infolist()}
        (info,) = (name.removesuffix("METADATA") for name in sizes if name.endswith(".dist-info/METADATA"))
        version = BytesParser().parsebytes(opened.read(f"{info}METADATA"))["Version"]
        return sizes, opened.read(f"{info}entry_points.txt").decode(), version


def main(folder: Path, tag: str) -> int:
    """Print what is wrong with the two archives in `folder`, and their sizes. Return 1 if something is wrong."""
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    sizes, entry_points, version = read_wheel(wheel)
    with tarfile.open(archive) as opened:
        names = [name.partition("/")[2] for name in opened.getnames()]
    changelog, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    faults = [*version_faults(version, changelog, citation, tag), *wheel_faults(sizes, entry_points), *sdist_faults(names)]
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {small_bytes(sizes):,} of them files other than the embedded weights")
    print(f"{archive.name}: {archive.stat().st_size:,} bytes, {len(names)} files")
    print("\n".join(f"release-check: {fault}" for fault in faults) or "release-check: no fault found")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
