"""Every code block of the README and of docs/ is run as pasted and prints what the page shows, or says why it is not run.

`python` and shell blocks (`sh`, `bash`, or no language) of a page run in their order, in one folder and one namespace. A
block `text` right behind a block is its output, in which a line of three dots stands for any lines. A text that says
"Save this as `file.py`:" above a block saves it. `yaml` and `json` must parse. Every other block, and one that cannot be
run, has a comment right above it: `<!-- not run: REASON -->`. Blocks after `<!-- slow: REASON -->` run in `make stress`
only, and so does every command with its own sizes (see `page_runner.QUICK`).
"""

import json
import sys
from contextlib import ExitStack

import pytest
import yaml
from huggingface_hub import constants

from ..helpers.hub import hub_of
from ..helpers.servers import nothing_goes_wrong_unseen  # noqa: F401
from .blocks import PAGES, blocks_of, page_name
from .page_runner import PYTHON, QUICK, SHELL, Checkpoints, PageRunner, check_command_lines, commands

BLOCKS = {page_name(path): blocks_of(path) for path in PAGES}
LONG = ("docs/add_a_rule.md", "docs/add_a_strategy.md")  # run as pasted, they take minutes
REQUEST = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/completions",
    "body": {"prompt": "Max has 53 shells.", "max_tokens": 8},
}


def is_quick(block):
    """Return whether the quick form runs the block exactly as pasted, or cannot run it at all."""
    words = [line.split() for line in commands(block.text)] if block.language in SHELL else []
    return block.note != "slow" and (block.printed is not None or not any(one[1:2] and one[1] in QUICK for one in words))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub on the loopback address."""
    with hub_of(Checkpoints(tmp_path_factory.mktemp("hub"))) as server:
        yield server


@pytest.fixture
def folder(tmp_path, monkeypatch, hub):
    """The current folder, empty but for a batch file, with the hub and a terminal of 80 columns."""
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "in.jsonl").write_text(json.dumps(REQUEST) + "\n")
    monkeypatch.chdir(tmp_path / "page")
    monkeypatch.syspath_prepend(tmp_path / "page")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    loaded = set(sys.modules)
    yield tmp_path / "page"
    for name in set(sys.modules) - loaded:  # modules that a page saved: another page may use the same name
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def run_page(blocks, folder, *, exact):
    with ExitStack() as stack:
        runner = PageRunner(folder, stack, exact=exact)
        for block in blocks:
            if block.file is not None:
                (folder / block.file).write_text(block.text)
                if block is blocks[0] and block.language in PYTHON:  # its names are those of later blocks
                    runner.python(block)
            elif block.note == "not run" or (block.note == "slow" and not exact):
                if block.language in SHELL:
                    check_command_lines(block)
            elif block.language in ("json", "yaml"):
                assert (json.loads if block.language == "json" else yaml.safe_load)(block.text), block.place
            else:
                assert block.language in (*PYTHON, *SHELL), (
                    f"{block.place} is neither run nor the output of a block: give it a language that is run, or write "
                    "`<!-- not run: REASON -->` above it"
                )
                runner.run(block)


@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if blocks and page not in LONG])
def test_the_page_runs_as_pasted(page, folder):
    run_page(BLOCKS[page], folder, exact=False)


@pytest.mark.parametrize("page", LONG)
def test_the_first_block_is_a_short_file(page):
    first = BLOCKS[page][0]
    assert first.language == "python" and first.file == f"my_{page[:-3].rpartition('_')[2]}.py"
    assert len(first.text.splitlines()) < 40


@pytest.mark.stress
@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if page in LONG or not all(map(is_quick, blocks))])
def test_the_page_runs_with_its_own_sizes(page, folder):
    run_page(BLOCKS[page], folder, exact=True)
