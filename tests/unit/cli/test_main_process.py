"""The command as a process of its own: wrong requests and closed pipes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlstep import __version__
from dlstep.cli import main

DLSTEP = [sys.executable, "-c", "from dlstep.cli import main; raise SystemExit(main())"]


def run(*arguments: str | bytes, **options: str) -> subprocess.CompletedProcess[str]:
    """The command with these arguments; `options` are environment variables."""
    environment = {**os.environ, "COLUMNS": "80", **options}
    return subprocess.run([*DLSTEP, *arguments], capture_output=True, text=True, check=False, timeout=900, env=environment)


WRONG = {
    "no cuda": (["--device", "cuda"], ["--device cuda", "no CUDA device", "cpu"]),
    "no such device": (["--device", "xyz"], ["device must be cpu, cuda or cuda:N, got 'xyz'"]),
    "a device of another kind": (["--device", "meta"], ["device must be cpu, cuda or cuda:N, got 'meta'"]),
    "pages": (["--num_pages", "2000000000"], ["num_pages=2000000000", "GiB", "lower"]),
    "more pages than can be counted": (["--num_pages", "1000000000000"], ["num_pages must be at most 2147483647"]),
    "a page": (["--page_size", "1000000000"], ["page_size=1000000000", "GiB", "lower"]),
    "requests": (["--max_num_reqs", "1000000000000"], ["max_num_reqs must be at most 1048576, got 1000000000000"]),
    "no such module": (["--decoding_strategy", "foo.bar"], ["'foo.bar' is unknown", "no module 'foo'", "multi_bd"]),
    "half a module": (["--decoding_strategy", "json.foo"], ["'json.foo' is unknown", "no module 'json.foo'"]),
    "no path of a module": (["--decoding_strategy", "..foo"], ["'..foo' is unknown"]),
    "no strategy in it": (["--decoding_strategy", "json.decoder"], ["'json.decoder' has no class", "STRATEGY"]),
    "bytes": ([b"\xff\xfe"], ["--prompts must be", "a text that UTF-8 can hold", "\\udcff"]),
    "deep value": (["--stop_token_ids", "[" * 3000 + "]" * 3000], ["stop_token_ids", "[...]"]),
}
# In a process of its own: arguments that only a system can give, and what torch itself, or Python's stack, may add to.
APART = ("no cuda", "pages", "bytes", "deep value")


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_one_sentence(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, parts = WRONG[case]
    if case == "no cuda" and Path("/dev/nvidiactl").exists():
        pytest.skip("there is a CUDA device here")
    if case in APART:
        done = run("generate", "a prompt", *arguments)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        code, (out, err) = main(["generate", "a prompt", *arguments]), capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("dlstep: error: ") and err.count("\n") == 1
    assert all(part in err for part in parts), err


FILES = {
    "deep lists": ("stop: " + "[" * 5000 + "]" * 5000, "is no YAML"),
    "no YAML": ("stop: [", "is no YAML"),
    "no mapping": ("- stop\n", "holds no names and values"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_config_file_that_is_none_is_one_sentence(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = FILES[case]
    (tmp_path / "options.yaml").write_text(text)
    code, (out, err) = main(["generate", "a prompt", "--config", str(tmp_path / "options.yaml")]), capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("dlstep: error: ") and err.count("\n") == 1
    assert message in err


def test_a_config_file_of_other_bytes_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "options.yaml").write_bytes(b"stop: \xff\n")
    done = run("generate", "a prompt", "--config", str(tmp_path / "options.yaml"))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith("dlstep: error: ")


def test_device_and_sizes_are_checked_before_weights_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty folder: whoever looked into it would say so."""
    for arguments, message in (
        (["--device", "xyz"], "device must be"),
        (["--num_pages", "2000000000", "--page_size", "2000000000"], "num_pages="),
    ):
        assert main(["generate", "a", "--model", str(tmp_path), *arguments]) == 2
        assert message in capsys.readouterr().err


CLOSED = {
    "a table": ["strategies"],
    "json": ["strategies", "--json"],
    "help": ["generate", "--help"],
    "an answer": ["generate", "a prompt", "--max_tokens", "4"],
    "the version": ["--version"],
}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows are closed in another way")
@pytest.mark.parametrize("case", CLOSED)
def test_a_closed_pipe_is_silent(case: str) -> None:
    """As `dlstep ... | head -0`: the reader is gone before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*DLSTEP, *CLOSED[case]], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=900
        )
    finally:
        os.close(writer)
    assert done.returncode in (0, 141)  # the parser of options itself ignores that nobody reads its help
    assert "ipe" not in done.stderr and "Traceback" not in done.stderr and "Exception" not in done.stderr
    if case != "an answer":
        assert done.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows are closed in another way")
def test_errors_that_nobody_reads_are_silent_as_well() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        code = subprocess.run([*DLSTEP, "nonsense"], stdout=writer, stderr=writer, check=False, timeout=900).returncode
    finally:
        os.close(writer)
    assert code == 141


def test_stop_texts_need_no_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    def text(*arguments: str) -> str:
        assert main(["generate", "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?", *arguments]) == 0
        return capsys.readouterr().out

    whole = text()
    assert text("--stop", "=") == text("--stop", "['=', never]") == text("--stop+", "=", "--stop+", "never")
    assert text("--stop", "=").strip() == whole.partition("=")[0].strip() != whole.strip()
    assert text("--stop", ";") == whole
    assert text("--stop_token_ids", "7") == text("--stop_token_ids", "[7]")


def test_the_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dlstep {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate"], "dlstep generate needs a prompt: `dlstep generate --help` shows examples"),
        (["batch"], "dlstep batch needs an input: `dlstep batch --help` shows examples"),
        (["replay"], "dlstep replay needs a file: `dlstep replay --help` shows examples"),
        (["models", "check"], "dlstep models check needs a path: `dlstep models check --help` shows examples"),
    ],
)
def test_what_is_missing_is_named(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"dlstep: error: {sentence}\n"
