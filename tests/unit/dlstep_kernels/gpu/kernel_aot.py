"""Compile kernels for devices that are not here, and say what became of them.

`python -m tests.unit.dlstep_kernels.gpu.kernel_aot` compiles every case of `aot_cases.py` for every architecture, in
parallel, and writes `aot.json`; triton keeps what it compiled under `build/kernels`, by the hash of its source.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "tests.unit.dlstep_kernels.gpu.kernel_aot"]  # in `ROOT`
RESULTS = Path(__file__).with_name("aot.json")
ARCHITECTURES = (80, 90, 100)
SHARED_LIMIT = {80: 166_912, 90: 232_448, 100: 232_448}  # bytes of shared memory that one program may take
MEASURES = {
    "registers": None,
    "spills": r"\b(?:STL|LDL)\b",
    "hgmma": r"\b[HQ]GMMA\b",
    "mma": r"\b(?:[HQ]MMA|UTC[HQ]MMA)\b",
    "async_copies": r"\bLDGSTS\b",
}


class _Absent:
    """Stands for a device of each architecture; its number is the architecture's, so that none shares compiled kernels."""

    def __init__(self, architecture: int) -> None:
        self.architecture = architecture

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        return self.architecture

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def source_digest(kernel: Any) -> str:
    """Return a hash of the code of a kernel and of all functions it calls, without comments and docstrings."""
    from triton.runtime.jit import JITCallable

    texts: dict[str, str] = {}
    pending = [kernel]
    while pending:
        function = pending.pop()
        name = f"{function.fn.__module__}.{function.fn.__qualname__}"
        if name not in texts:
            tree = ast.parse(function.src)
            body = cast(ast.FunctionDef, tree.body[0]).body
            texts[name] = ast.dump(ast.Module(body[1:] if ast.get_docstring(tree.body[0]) else body, []))
            named = (function.fn.__globals__.get(word) for word in set(re.findall(r"\w+", texts[name])))
            pending += [one for one in named if isinstance(one, JITCallable) and one.fn.__module__.startswith("dlstep")]
    return hashlib.sha256("\n".join(texts[name] for name in sorted(texts)).encode()).hexdigest()[:16]


def _disassembled(cubin: bytes) -> tuple[int, str]:
    """Registers a thread, and the machine code."""
    import triton.backends.nvidia as nvidia

    tools = Path(nvidia.__file__).parent / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage, code = (
            subprocess.run([tools / tool, *options, file.name], capture_output=True, text=True, check=True).stdout
            for tool, options in (("cuobjdump", ["-res-usage"]), ("nvdisasm", []))
        )
    return int(re.findall(r"REG:(\d+)", usage)[0]), code


def _launches(call: Any) -> Iterator[tuple[Any, Any]]:
    """Each kernel that `call` would launch, and what it was compiled to."""
    from triton.runtime.jit import JITFunction

    found: list[tuple[Any, Any]] = []
    run = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        del warmup
        compiled = run(self, *arguments, grid=grid, warmup=True, **options)
        found.append((self, compiled))
        return compiled

    JITFunction.run = compile_only
    try:
        call()
    finally:
        JITFunction.run = run
    yield from found


def compile_case(name: str, architecture: int) -> list[dict[str, Any]]:
    """Compile one case for one architecture; an entry for each kernel. For a process of its own."""
    from triton.runtime.driver import driver

    from dlstep_kernels.gpu import launch

    driver.set_active(_Absent(architecture))
    # The first time before any kernel is imported, which may take the function for its own.
    launch.architecture = lambda device: f"sm_{driver.active.get_current_device()}"
    from .aot_cases import CASES

    case = next(case for case in CASES if case.name == name)
    entries = []
    for kernel, compiled in _launches(case.call):
        registers, code = _disassembled(compiled.asm["cubin"])
        counts = {measure: len(re.findall(pattern, code)) for measure, pattern in MEASURES.items() if pattern}
        entries.append(
            {
                "case": name,
                "architecture": f"sm_{architecture}",
                "kernel": kernel.fn.__name__,
                "warps": compiled.metadata.num_warps,
                "stages": compiled.metadata.num_stages,
                "shared": compiled.metadata.shared,
                "registers": registers,
                **counts,
                "source": source_digest(kernel),
            }
        )
    return entries


def _outcome(job: tuple[str, int], future: Future[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The outcome of a job; an error is an entry as well."""
    if error := future.exception():
        return [{"case": job[0], "architecture": f"sm_{job[1]}", "error": f"{type(error).__name__}: {error}"}]
    return future.result()


def environment() -> dict[str, str]:
    """That of a process which compiles: no interpreter, and a cache that is the repository's own."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    fixed = {"PYTHONPATH": str(ROOT / "src"), "TRITON_DEFAULT_FP_FUSION": "1"}
    return {"TRITON_CACHE_DIR": str(ROOT / "build" / "kernels"), **kept, **fixed}


def complaints(entries: Iterable[dict[str, Any]]) -> list[str]:
    """Faults of compiled kernels of known cases."""
    from .aot_cases import CASES

    cases = {case.name: case for case in CASES}
    wrong = []
    for entry in entries:
        where = f"{entry['case']}, {entry['architecture']}"
        if "error" in entry:
            wrong.append(f"{where}: {entry['error']}")
            continue
        case, where, hopper = cases[entry["case"]], f"{where}, {entry['kernel']}", entry["architecture"] == "sm_90"
        if hopper and entry["spills"] and entry["kernel"] not in case.spilling:
            wrong.append(f"{where}: {entry['spills']} spills")
        if entry["shared"] > SHARED_LIMIT[int(entry["architecture"][3:])]:
            wrong.append(f"{where}: {entry['shared']} bytes of shared memory are more than a program may take")
        if hopper and entry["kernel"] in case.tensor_cores and not entry["hgmma"]:
            wrong.append(f"{where}: the tensor cores of Hopper are not used")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the quick cases, as JSON to standard output")
    parser.add_argument("--only", default="", help="only cases whose name contains this, as JSON lines to standard output")
    parser.add_argument("--architectures", type=int, nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if "TRITON_INTERPRET" in os.environ:
        sys.exit(subprocess.run([*COMMAND, *sys.argv[1:]], env=environment(), cwd=ROOT, check=False).returncode)
    os.environ.update(environment())
    from .aot_cases import CASES

    picked = [case for case in CASES if options.only in case.name and (case.quick or not options.quick)]
    jobs = [(case.name, each) for case in picked for each in options.architectures if each >= case.least]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(compile_case, *job) for job in jobs]
        entries = [entry for job, future in zip(jobs, futures, strict=True) for entry in _outcome(job, future)]
    if options.quick:
        print(json.dumps(entries))
        return
    for entry in entries:
        print(json.dumps(entry))
    if not options.only and set(options.architectures) == set(ARCHITECTURES):
        import triton

        lines = ",\n".join("    " + json.dumps(entry) for entry in entries)
        RESULTS.write_text(f'{{\n  "triton": "{triton.__version__}",\n  "kernels": [\n{lines}\n  ]\n}}\n')
    wrong = complaints(entries)
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
