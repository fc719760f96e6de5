"""Mistakes of a first hour: what is typed, and the sentence that is printed. No traceback, and an exit code."""

import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial

import pytest
from huggingface_hub import constants

from dlstep import LLM, SamplingParams, tiny
from dlstep.cli import main

from ..helpers.files import edit
from ..helpers.serving import Served, served, tiny_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
HEAD = """\
from dataclasses import dataclass, field

from dlstep.core import Choice


@dataclass(frozen=True, slots=True)
class Mine(Choice):
    count: int = 1

    def chosen(self, block_pass):
        {}


RULE = Mine
"""
RULE = HEAD.format("return [0]")


CHECKPOINTS = {
    "no_config": lambda folder: (folder / "config.json").unlink(),
    "bin_only": lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
    "gguf_only": lambda folder: (folder / "model.safetensors").rename(folder / "model.gguf"),
    "gpt2": lambda folder: edit(folder / "config.json", architectures=["GPT2LMHeadModel"], model_type="gpt2"),
    "no_tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
}
FILES = {
    "syntax.py": "class Mine(:\n",
    "misspelled.py": "from dlstep.core import Choise\n",
    "lacking.py": "import nonexistent_package\n",
    "nothing.py": "x = 1\n",
    "thawed.py": RULE.replace("(frozen=True, slots=True)", ""),
    "plain.py": RULE.replace("@dataclass(frozen=True, slots=True)\n", ""),
    "value.py": RULE.replace("RULE = Mine", "RULE = Mine()"),
    "listed.py": RULE.replace("count: int = 1", "counts: list = field(default_factory=list)"),
    "renamed.py": RULE.replace("def chosen", "def choose"),
    "arguments.py": RULE.replace("(self, block_pass)", "(self, block, rows)"),
    "no_rows.py": HEAD.format("pass"),
    "positions.py": HEAD.format("return list(block_pass.block.masked)"),
    "descending.py": HEAD.format("return [1, 0]"),
    "a_set.py": HEAD.format("return {0}"),
    "floats.py": HEAD.format("return [0.0]"),
    "assigned.py": HEAD.format("self.count += 1"),
    "unknown.yaml": "accept_treshold: 0.3\n",
    "broken.jsonl": '{"prompt": "a", "answer": "b"}\n{"prompt": "c"\n',
    "misnamed.jsonl": '{"question": "a", "anser": "b"}\n',
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """What a user types, and parts of the sentence that must be printed.

    Attributes:
        typed: A command line, or a line of Python or of HTTP as users would write it.
        said: Parts of the sentence, in any order: field, value, remedy.
        code: The exit code of a command; the status of an HTTP response.
        act: What to do with the server instead of running `typed`, which is then only shown; it returns what is printed.
    """

    typed: str
    said: tuple[str, ...]
    code: int = 2
    act: Callable[[Served], str] | None = None


def command(line, *said, code=2):
    """A command line; `generate` stands for `dlstep generate STORY`."""
    return Mistake(f"dlstep {line}", said, code)


def rule(file, *said, code=2):
    """A rule in one of the files."""
    return Mistake(f"dlstep generate STORY --rule ./{file}", said, code)


def python(typed, *said):
    """An expression, with the names of `from dlstep import LLM, SamplingParams`."""
    return Mistake(typed, said, 0, partial(raised, typed))


def raised(typed, _):
    """The message of the exception that an expression raises."""
    names = {"LLM": LLM, "SamplingParams": SamplingParams, "STORY": STORY, "llm": tiny_llm()}
    try:
        result = eval(typed, names)
    except (ValueError, TypeError, FileNotFoundError) as error:
        return str(error)
    (output,) = result
    return output.error


def body(said, path="/v1/completions", code=400, **fields):
    """A request of HTTP; without a prompt among its fields, it has the story and eight tokens."""
    given = fields if "messages" in fields else {"prompt": STORY, "max_tokens": 8} | fields
    shown = {name: value for name, value in given.items() if value != STORY} if fields else given
    return Mistake(f"POST {path} {json.dumps(shown)}", said, code, partial(answered, path, given, code))


def answered(path, given, code, server):
    """The message of the server's answer."""
    return server.post(path, status=code, **given)["error"]["message"]


COMMANDS = [
    command("generate STORY --acept_threshold 0.3", "--acept_threshold", "did you mean --accept_threshold?"),
    command("generate STORY --max_tokens 0", "max_tokens: must be at least 1, got 0"),
    command("generate STORY --rule treshold", "rule 'treshold' is unknown: did you mean threshold?"),
    command("generate STORY --rule multi_bd", "rule 'multi_bd' is unknown: did you mean decoding_strategy='multi_bd'?"),
    command("generate STORY --decoding_strategy multibd", "'multibd' is unknown: did you mean multi_bd?"),
    command("generate STORY --pinned '{x: 5}'", "--pinned: it takes offsets in the answer", "got {'x': 5}"),
    command("generate STORY --system short", "--system and --chat_template_kwargs apply only to conversations: add --chat"),
    command("generate STORY --block_size 4096", "max_num_batched_tokens: 4096 is less than the 16384 rows", "lower block_size"),
    command("generate STORY --dtype fp16", "dtype: must be one of 'float32', 'bfloat16', 'float16'", "got 'fp16'"),
    command("generate STORY --model ''", "--model: it is empty: give a folder or a name"),
    command("generate STORY --model tiny_bd", "no checkpoint folder at 'tiny_bd'", "did you mean tiny-bd?"),
    command("generate LONG", "rejected", "it has 1801 tokens; max_model_len=512 leaves no room", code=1),
    command("generate ''", "PROMPT: it is empty: give at least one token"),
    command("generate STORY --config nowhere.yaml", "--config: there is no file 'nowhere.yaml'"),
    command("generate STORY --config unknown.yaml", "no option 'accept_treshold': did you mean --accept_threshold?"),
    command("eval --grid '{\"accept_threshold\": [0.3'", "--grid takes options with lists of values, like {"),
    command("eval --grid '{\"acept_threshold\": [0.3]}'", "no option 'acept_threshold'", "did you mean accept_threshold?"),
    command("eval --tasks shels", "--tasks: 'shels' is unknown, did you mean shells?"),
    command("eval --tasks questions --questions broken.jsonl", "broken.jsonl, line 2 holds no JSON: Expecting"),
    command("eval --tasks questions --questions misnamed.jsonl", "misnamed.jsonl, entry 1", "look at 'answer'"),
    command("eval --dataset_limit 3 --seed 1 --out run", "run", "seed", "give another"),
    command("report nowhere", "no run in 'nowhere'", "give a folder that `dlstep eval --out` wrote"),
    command("serve --port PORT_IN_USE", "cannot listen on 127.0.0.1", "choose another address with --host and --port"),
    command("models check nowhere", "'nowhere' does not exist: give a folder, or a name like org/name"),
    command("laws nowhere.py", "no strategy, rule, .py file or module is called 'nowhere.py'"),
]
RULES = [
    rule("syntax.py", "cannot be imported: SyntaxError: invalid syntax (syntax.py:1: class Mine(:)"),
    rule("misspelled.py", "cannot import name 'Choise' from 'dlstep.core'", "(misspelled.py:1)"),
    rule("lacking.py", "it needs the module 'nonexistent_package', which Python does not find"),
    rule("nothing.py", "has no RULE: let its last line be RULE = YourClass"),
    rule("thawed.py", "non-frozen", "(thawed.py:6)", "write @dataclass(frozen=True, slots=True) above the class"),
    rule("plain.py", "Mine is no dataclass: write @dataclass(frozen=True, slots=True) above it"),
    rule("value.py", "write RULE = Mine, without brackets"),
    rule("listed.py", "Mine.counts=[] can change: give a number, a text or a tuple"),
    rule("renamed.py", "Mine does not define chosen"),
    rule("arguments.py", "Mine.chosen (arguments.py:10) takes (self, block, rows), but it is called with (self, block_pass)"),
    rule(
        "no_rows.py",
        "Mine.chosen",
        "returned None",
        "a list of ascending indices into block.masked, from 0 to",
        "this is a NoneType",
        code=1,
    ),
    rule("positions.py", "these are positions: the index of position block.masked[i] is i", code=1),
    rule("descending.py", "returned [1, 0]", "these do not ascend: return sorted(set(indices))", code=1),
    rule("a_set.py", "returned {0}", "this is a set", code=1),
    rule("floats.py", "returned [0.0]", "0.0 is a float: convert each index by int()", code=1),
    rule("assigned.py", "FrozenInstanceError: cannot assign to field 'count' (assigned.py:11)", code=1),
]
PYTHON = [
    python("LLM(bufer_size=4)", "no option 'bufer_size'", "did you mean buffer_size?"),
    python("LLM(max_tokens=5)", "it is set for each request, as SamplingParams(max_tokens=5)"),
    python("LLM(device='cuda:99')", "device: 'cuda:99' does not exist, torch finds"),
    python("LLM(revision='main')", "here it is model='org/name@revision'"),
    python("LLM('tiny-llada', decoding_strategy='multi_bd')", "does not go with the model tiny-llada", "dual_cache"),
    python("LLM(num_pages=1)", "num_pages: 1 pages of page_size=8 cannot hold one request", "give at least 64 pages"),
    python("LLM('no_config')", "holds no config.json: it is not a checkpoint folder"),
    python("LLM('bin_only')", "pytorch_model.bin may hold code and is not read: convert it to safetensors"),
    python("LLM('gguf_only')", "model.gguf is not read: give the folder of the model in transformers' format"),
    python("LLM('gpt2')", "model_type 'gpt2'", "are not supported", "or give one of these, or a file of yours, as family"),
    python("LLM('no_tokenizer')", "holds no tokenizer.json: save its tokenizer as a fast one there"),
    python("LLM('no_tokenizer/model.safetensors')", "is a file: give the folder that holds it"),
    python("SamplingParams(max_new_tokens=64)", "SamplingParams has no option 'max_new_tokens'", "did you mean max_tokens?"),
    python("SamplingParams(accept_threshold=0.9)", "SamplingParams(strategy_options={'accept_threshold': 0.9})"),
    python("SamplingParams(stop='text')", "stop: must be a list of items that are each a text", "got 'text'"),
    python(
        "llm.generate(STORY, SamplingParams(strategy_options={'accept_threshold': 3}))",
        "accept_threshold: must be at most 1.0, got 3",
    ),
    python("llm.generate(STORY, max_tokens=64)", "LLM.generate has no option", "SamplingParams(max_tokens=64)"),
    python("llm.generate(STORY, {'max_tokens': 64})", "sampling_params: must be SamplingParams, got {'max_tokens': 64}"),
    python("llm.generate([99999])", "an id outside [0, 139), the ids of the tokenizer"),
    python("llm.resume('trace.jsonl')", "load a file with Trace.load(path)"),
]
HTTP = [
    body(("max_token: this field is unknown; did you mean max_tokens?",), max_token=8),
    body(("belong in the object dlstep",), accept_threshold=0.3),
    body(("no option 'acept_threshold'", "did you mean accept_threshold?"), dlstep={"acept_threshold": 0.3}),
    body(("dlstep.rule: must be the name of a rule, got 'treshold': did you mean threshold?",), dlstep={"rule": "treshold"}),
    body(("frequency_penalty: dlstep does not support this: leave it out or set it to 0",), frequency_penalty=0.5),
    body(("the model 'gpt-4' does not exist: this server has 'tiny-bd'",), code=404, model="gpt-4"),
    body(("dlstep.stream: Input should be 'settled', 'drafts' or 'steps', got 'draft'",), dlstep={"stream": "draft"}),
    body(("prompt: it has 1801 tokens; max_model_len=512 leaves no room for an answer",), prompt="Max " * 900),
    body(("there is nothing at /v1/complete",), "/v1/complete", 404),
]


def printed(mistake, server):
    """Make the mistake. Return the exit code and what is printed, of the table's files in the current folder."""
    if mistake.act is not None:
        return mistake.code, mistake.act(server)
    given = {"STORY": STORY, "LONG": "Max " * 900, "PORT_IN_USE": server.url.rpartition(":")[2]}
    arguments = [given.get(word, word) for word in shlex.split(mistake.typed)[1:]]
    out, err = io.StringIO(), io.StringIO()
    loaded = set(sys.modules)
    with redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    for name in [name for name in sys.modules if name not in loaded and f"{name}.py" in FILES]:
        del sys.modules[name]
    # An embedded model first tells what it is for if a prompt is not of its kind.
    first, newline, rest = err.getvalue().partition("\ndlstep: ")
    return code, (f"dlstep: {rest}" if newline and "embedded models" in first else err.getvalue()).strip()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server, with the files and checkpoints of the table and a run in the current folder."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name, change in CHECKPOINTS.items():
        shutil.copytree(tiny.path("tiny-bd"), folder / name)
        change(folder / name)
    with pytest.MonkeyPatch.context() as patched, served(tiny_llm().engine) as server:
        patched.chdir(folder)
        patched.setattr(constants, "HF_HUB_OFFLINE", True)
        patched.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert main(["eval", "--dataset_limit", "2", "--out", "run"]) == 0
        yield server


@pytest.mark.parametrize("mistake", [*COMMANDS, *RULES, *PYTHON, *HTTP], ids=lambda each: each.typed[:60])
def test_mistake_is_one_sentence_with_a_remedy(mistake, server):
    code, sentence = printed(mistake, server)
    assert code == mistake.code, sentence
    assert all(part in sentence for part in mistake.said), sentence
    assert sentence and "Traceback" not in sentence and sentence.count("\n") == 0
