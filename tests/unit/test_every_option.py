"""Every option changes something that a user can see, is refused where it cannot apply, or says why it does nothing.

A new option needs a row in one of the tables below, two command lines or two values with a result that differs; an option of
the server or of `SamplingParams` needs a test that gives it.
"""

# Options of every type are given by name.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

import contextlib
import io
import json
import re
import shlex
import shutil
from contextlib import redirect_stderr, redirect_stdout
from copy import copy
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from dlstep import LLM, SamplingParams, tiny
from dlstep.batch.engine import BatchEngine
from dlstep.batch.options import BatchOptions
from dlstep.cli import main
from dlstep.cli.main import COMMANDS, WITH_STRATEGY, module_of, parser_of
from dlstep.cli.options import OF_SESSIONS
from dlstep.engine.config import EngineConfig, engine_config, field_help
from dlstep.evaluate.options import EvalOptions
from dlstep.serve.engine_loop import known_facts
from dlstep.serve.log_lines import LineHandler
from dlstep.serve.router.router import Router
from dlstep.serve.settings import ServeOptions, template_in
from dlstep.text.chat import chat_prompt

from ..helpers.serving import served, tiny_llm

TESTS = Path(__file__).parents[1]
STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
WARM = {"temperature": 9.0, "max_tokens": 4}


def answer(llm, **params):
    """The answer to the story, without what depends on time."""
    return [asdict(output) for output in llm.generate(STORY, SamplingParams(**{"max_tokens": 8} | params))]


def of_core(name):
    """The value in the configuration that the core reads."""
    return lambda llm: getattr(llm.state.config, name)


def caches(llm):
    return llm.engine.driver._caches._most


def network(llm):
    return llm.engine.driver.network.model


def threads(llm):
    import torch

    return torch.get_num_threads()


# Of each option of the engine: other options and a result that differs from that of `LLM(**before)`; or the words of the
# refusal; or words of the help text; or a file of tests that give it.
ENGINE = {
    "model": ({}, {"model": "tiny-edit"}, lambda llm: llm.state.config.spec.fingerprint),
    "family": ({}, {"family": "llada"}, "read as llada"),
    "mask_token_id": ({}, {"mask_token_id": 3}, lambda llm: llm.state.config.spec.mask_id),
    "head_shift": ({}, {"head_shift": 1}, lambda llm: llm.state.config.spec.head_shift),
    "training": ({}, {"training": "bidirectional"}, "'multi_bd' does not go with"),
    "use_lora": ({}, {"use_lora": True}, "needs lora_path"),
    "lora_path": ({}, {"lora_path": "nowhere"}, "nowhere"),
    "decoding_strategy": ({}, {"decoding_strategy": "causal_blocks"}, lambda llm: type(llm.state.strategy)),
    "sampling_mode": ({}, {"sampling_mode": "edit"}, lambda llm: type(llm.state.strategy)),
    "strategy_options": ({}, {"strategy_options": {"accept_threshold": 0.1}}, answer),
    "page_size": ({}, {"page_size": 2}, of_core("page_size")),
    "num_pages": ({}, {"num_pages": 99}, of_core("num_pages")),
    "kv_cache_gib": ({"kv_cache_gib": 0.1}, {"kv_cache_gib": 0.2}, of_core("num_pages")),
    "gpu_memory_utilization": ({}, {"gpu_memory_utilization": 0.5}, "need cuda"),
    "buffer_policy": ({}, {"buffer_policy": [{"buffer_size": 1}]}, answer),
    "max_model_len": ({}, {"max_model_len": 32}, lambda llm: answer(llm, max_tokens=512)),
    "max_num_batched_tokens": ({}, {"max_num_batched_tokens": 40}, of_core("max_num_batched_tokens")),
    "max_num_reqs": ({}, {"max_num_reqs": 1}, of_core("max_num_reqs")),
    "enable_prefix_caching": ({}, {"enable_prefix_caching": False}, of_core("enable_prefix_caching")),
    "device": ({}, {"device": "cuda:99"}, "device"),
    "dtype": ({}, {"dtype": "bfloat16"}, lambda llm: network(llm).dtype),
    "quantization": ({}, {"quantization": "fp8"}, answer),
    "kv_cache_dtype": ({}, {"kv_cache_dtype": "fp8"}, answer),
    "num_threads": ({"num_threads": 1}, {"num_threads": 2}, threads),
    "enforce_eager": "On cuda",
    "pre_merge_lora": ({}, {"pre_merge_lora": True}, "without an adapter"),
    "max_sessions": ({}, {"max_sessions": 2}, caches),
    "tensor_parallel_size": "unit/distributed/test_worker_group.py",
    "compile_layers": "unit/models/test_compiled.py",
    "rank_timeout": ({}, {"rank_timeout": 7.0}, "no effect with tensor_parallel_size=1"),
    "capture_graphs": "On cuda",
    "seed": ({}, {"seed": 1}, lambda llm: answer(llm, **WARM)),
    "processors": ({}, {"processors": {"min_tokens": {"count": 40}}}, lambda llm: answer(llm, max_tokens=48)),
}

SAMPLING = {field.name for field in fields(SamplingParams)}

# Of each command: command lines in a folder with the files of `prepared`, and after the bar what gives another result. `!`
# begins a word of the help text of an option that does nothing here.
EVAL = "--dataset_limit 2 --out run"
OWN_PARTS = [f"!{name} Your" for name in ("decoding_strategy", "rule", "inner", "processors")]
LINES = {
    "demo": [
        "--json --problems 1 | --problems 2 | --seed 1 | --device cuda:99",
        "--problems 1 | --json | --shown 1",
    ],
    "generate": [
        "STORY | STORY STORY | --json | --config short.yaml | --pinned '{0: 5}' | --print_config",
        "STORY --json | --chat | --suffix x",
        "STORY --chat | --system short | --chat_template_kwargs '{a: 1}'",
        "!progress terminal",
    ],
    "serve": [
        "--port 99999 | --buffer_policy nowhere.yaml | --print_config",
        "--print_config | --config short.yaml",
        "!open browser",
    ],
    "batch": [
        "requests.jsonl out.jsonl | other.jsonl out.jsonl | --served_model_name x | --config short.yaml | --print_config",
        "requests.jsonl out.jsonl | requests.jsonl other_out.jsonl | --actors 2 | --max_retries 2",
        "chats.jsonl out.jsonl | --chat_template template.jinja",
        "!ray cluster",
        "!engine_timeout Seconds",
        "!progress terminal",
    ],
    "strategies": [" | dual_cache | --json", "dual_cache | --json"],
    "rules": [" | quota | --json"],
    "compare": [
        "--rules quota --strategies multi_bd --problems 2 --json | --rules threshold | --strategies dual_cache | --problems 1",
        "--rules quota --strategies multi_bd --problems 1 --json | --plot plot.png | --out run",
        "--rules quota --strategies multi_bd --problems 1 --json | --seed 1 | --grid '{steps_per_block: [1, 8]}' | --data .",
        "--rules quota --strategies multi_bd --problems 1 | --json | --tasks gsm8k | --questions questions.jsonl | --shots 1",
        "!chat chat",
        "!confirm_run_unsafe_code sandbox",
        "!progress terminal",
    ],
    "eval": [
        f"{EVAL} | --grid '{{accept_threshold: [0.1]}}' | --json | --tasks questions | --dataset_limit 1",
        f"{EVAL} | --out on | --problem_seed 1 | --chat | --shots 1 | --data . | --questions questions.jsonl | --print_config",
        f"{EVAL} | --config short.yaml",
        "!engine_timeout Seconds",
        "!confirm_run_unsafe_code sandbox",
        "!progress terminal",
    ],
    "report": ["run | gone | --show shells/0 | --against run | --json"],
    "laws": [
        "quota --examples 2 --only [told] | threshold | --only [order]",
        "!examples Random",
        "!seed Seed",
        "!law_timeout Seconds",
    ],
    "models": [" | --json"],
    "models check": [
        "TINY | nowhere | --json | --family llada | --lora_path nowhere | --head_shift 1 | --mask_token_id 3 | "
        "--training bidirectional",
        "TINY --json | --max_num_reqs 2 | --max_model_len 64",
    ],
    "replay": ["trace.jsonl | nowhere | --json", *OWN_PARTS],
    "view": ["trace.jsonl | nowhere | --out page.html", "!open browser", *OWN_PARTS],
    "doctor": [" | --json"],
}
# Options that have no effect beside others: a command line for each, and words of its refusal.
MOOT = {
    "generate STORY --chat --system short": "drops messages",
    "generate STORY --top_logprobs 2": "add --json",
    "generate STORY --step_map true": "add --json",
    "generate STORY --max_tokens 500": "--max_tokens: 500 exceeds the 493 tokens",
    "generate STORY --max_sessions 80": "unrecognized arguments: --max_sessions",
    "generate STORY --enforce_eager true --capture_graphs lazy": "has no effect with enforce_eager=True",
    "generate STORY --kv_cache_gib 1 --num_pages 99": "--num_pages: ",
    "serve --log_prompts true --log_requests false": "--log_prompts: ",
    "serve --kept_requests 0 --kept_positions 9": "--kept_positions: ",
    "serve --chat_template empty.jinja": "empty.jinja is empty",
    "serve --chat_template wrong.jinja": "--chat_template: ",
    "report run --show shells/0 --against run": "--show and --against do not go together",
}


def few(cases, *quick):
    """The cases, of which `make test` runs only `quick`."""
    return [pytest.param(case, id=case, marks=() if case in quick else pytest.mark.full) for case in cases]


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A folder with the files that the command lines name."""
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": STORY}})
    chat = json.loads(line) | {"url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": STORY}]}}
    files = {
        "requests.jsonl": line, "other.jsonl": line.replace("53", "54"), "chats.jsonl": json.dumps(chat),
        "template.jinja": "{{ messages[0].content }} 1\n", "empty.jinja": "\n", "wrong.jinja": "{% for %}",
        "questions.jsonl": json.dumps({"prompt": STORY, "answer": 92}), "short.yaml": "accept_threshold: 0.1",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    session = tiny_llm().session()
    session.submit(STORY)
    session.step()
    session.trace.save(tmp_path / "trace.jsonl")
    session.close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options_of(command, parser):
    """The options that `LINES` must have: those of other tables are left out."""
    owner = {"batch": BatchOptions, "eval": EvalOptions, "compare": EvalOptions}.get(command)
    names = {field.name for field in fields(owner)} - SAMPLING if owner else set()
    names |= {field.name for field in fields(module_of(command).COMMAND)}
    names |= {"config", "print_config"} if command in WITH_STRATEGY else set()
    actions = {name: parser.action_of(name) for name in names}
    return {name for name, action in actions.items() if action is not None and action.option_strings}


def test_every_option_has_a_row_or_a_test():
    tests = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    given = {*SAMPLING, *(field.name for field in fields(ServeOptions))}
    assert [name for name in given if not re.search(rf'\b{name}=|--{name}\b|"{name}":', tests)] == []
    assert ENGINE.keys() == {field.name for field in fields(EngineConfig)}
    said = {("engine", name): row for name, row in ENGINE.items() if isinstance(row, str)}
    helps = {"engine": field_help(EngineConfig)}
    for command in COMMANDS:
        lines = LINES[command]
        wordless = dict(line[1:].split() for line in lines if line.startswith("!"))
        parser = parser_of(command)
        names = options_of(command, parser)
        assert names == {*wordless} | {name for name in names if f"--{name} " in f"{' '.join(lines)} "}, command
        helps[command] = {action.dest: action.help or "" for action in parser._actions}
        said |= {(command, name): row for name, row in wordless.items()}
    for (owner, name), row in said.items():
        found = name in (TESTS / row).read_text() if row.endswith(".py") else row in helps[owner][name]
        assert found, (owner, name)


@pytest.mark.parametrize("name", few([name for name, row in ENGINE.items() if not isinstance(row, str)], "page_size", "device"))
def test_an_option_of_the_engine_changes_the_engine(name):
    before, changes, seen = ENGINE[name]
    if isinstance(seen, str):
        with pytest.raises((ValueError, OSError), match=re.escape(seen)):
            LLM(**before | changes)
        return
    first = seen(tiny_llm() if not before else LLM(**before))
    assert seen(LLM(**before | changes)) != first


def test_end_reserve_changes_the_answer():
    warm = {"json_schema": '{"type": "string"}', "max_tokens": 16, "temperature": 50.0}
    assert answer(tiny_llm(), **warm, end_reserve=8) != answer(tiny_llm(), **warm)


def test_an_evaluation_passes_on_every_parameter():
    told = {
        "max_tokens": 3, "stop": ("=",), "temperature": 9.0, "top_k": 1, "top_p": 0.5, "min_p": 0.1, "ignore_eos": True,
        "stop_token_ids": (5,), "max_nfe": 2, "max_repetition_run": 2, "step_map": True,
    }  # fmt: skip
    assert told.keys() == SAMPLING & {field.name for field in fields(EvalOptions)} - {"seed"}
    params = EvalOptions(**told).params("shells", ())
    assert {key: getattr(params, key) for key in told} == told


GIVEN = {name: row[1][name] for name, row in ENGINE.items() if isinstance(row, tuple)} | {
    "decoding_strategy": "multi_bd", "num_pages": -1, "capture_graphs": "lazy",
    "compile_layers": True, "tensor_parallel_size": 2, "device": "cuda",
}  # fmt: skip


class Received(ValueError):
    """The configuration that a command would load an engine for."""


@pytest.mark.parametrize("command", few(WITH_STRATEGY, "serve"))
def test_a_command_passes_on_every_option_of_the_engine(command, prepared, monkeypatch):
    received = []

    def receive(config, *others, **options):
        received.append(config)
        raise Received

    for place in ("llm.load_engine", "engine.loader.load_engine", "serve.http.server.serve"):
        monkeypatch.setattr(f"dlstep.{place}", receive)
    lacking = {"strategy_options"} | (set() if command == "serve" else {"buffer_policy"})
    lacking |= {*OF_SESSIONS} & {"generate": {*OF_SESSIONS}, "batch": {*OF_SESSIONS}}.get(command, set())
    lacking |= {"seed", "processors"} if command == "generate" else set()  # options of the request
    first = {"generate": [STORY], "batch": ["requests.jsonl", "out.jsonl"]}.get(command, [])
    (prepared / "policy.yaml").write_text(json.dumps(GIVEN["buffer_policy"]))
    for instead in ({"gpu_memory_utilization": None}, {"kv_cache_gib": None, "capture_graphs": "start", "enforce_eager": True}):
        values = {name: value for name, value in (GIVEN | instead).items() if name not in lacking and value is not None}
        typed = values | ({"buffer_policy": "policy.yaml"} if "buffer_policy" in values else {})
        flags = [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in typed.items()]
        assert main([command, *first, *flags]) == 2
        found = received.pop()
        assert not received and found == engine_config(values)
    assert {*GIVEN, "enforce_eager"} - lacking | lacking == {*ENGINE}


def test_a_given_template_replaces_that_of_the_checkpoint(tmp_path):
    engine, file = tiny_llm().engine, tmp_path / "template.jinja"
    file.write_text("given {{ messages[0].content }}")
    tokenizer = copy(engine.tokenizer)
    tokenizer.chat_template = "own {{ messages[0].content }}"
    engine = replace(engine, tokenizer=tokenizer, chat_template=None)
    for path, start in ((None, "own"), (str(file), "given")):
        router = Router([], ServeOptions(chat_template=path))
        router._tokenizer = tokenizer
        served = router.known(known_facts(engine))
        batch = BatchEngine(engine, template=template_in(path))._known
        for facts in (served, batch):
            ids = chat_prompt(facts.tokenizer, facts.chat_template, [{"role": "user", "content": "a"}])
            assert tokenizer.decode(ids) == f"{start} a"


@pytest.mark.full
@pytest.mark.parametrize("log_prompts", [False, True])
def test_prompts_are_logged_if_asked_for(log_prompts, monkeypatch):
    lines = []  # an exception here would end the thread that logs, whatever it logs
    monkeypatch.setattr(LineHandler, "handle", lambda handler, record: lines.append(str(record.msg)))
    with served(log_requests=True, log_prompts=log_prompts) as server, server.http() as http:
        assert http.post("/v1/completions", json={"prompt": "x", "max_tokens": 4}).status_code == 200
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    assert [row.keys() >= {"prompts", "texts"} for row in rows] == [log_prompts]


MEASURED = r'[\d.]+ *(m?s|us|tok/s|[GM]iB)\b|"\w*(second|speed|_ms|share)\w*": [^,}]+|─+|\s+'


def result_of(line, place):
    """What a command line prints and writes in a copy of the prepared folder, without what depends on time."""
    shutil.copytree(Path.cwd(), place)
    out, err = io.StringIO(), io.StringIO()
    words = [{"STORY": STORY, "TINY": str(tiny.path("tiny-bd"))}.get(word, word) for word in shlex.split(line)]
    with contextlib.chdir(place), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
        files = {str(file): file.read_bytes() if file.name in ANSWERS else b"" for file in sorted(Path().rglob("*"))}
    texts = [re.sub(MEASURED, " ", each.getvalue()) for each in (out, err)]
    return code, texts, files


ANSWERS = ("answers.jsonl", "out.jsonl", "other_out.jsonl")


@pytest.mark.parametrize("command", few(COMMANDS, "replay", "rules"))
def test_an_option_of_a_command_changes_its_result(command, prepared, tmp_path_factory):
    if command == "report":
        assert main(["eval", *shlex.split(EVAL)]) == 0
    for line in LINES[command]:
        base, *changes = map(str.strip, line.split("|"))
        runs = [base, base, *[f"{base} {change}" if change.startswith("-") else change for change in changes]]
        runs = [] if line.startswith("!") else runs
        results = [result_of(f"{command} {run}", tmp_path_factory.mktemp("run") / "folder") for run in runs]
        assert results[:1] == results[1:2], base
        assert [run for run, result in zip(runs[2:], results[2:], strict=True) if result == results[0]] == []


@pytest.mark.parametrize("line", few(MOOT, "serve --chat_template empty.jinja"))
def test_an_option_without_effect_beside_others_is_refused(line, prepared, capsys):
    if line.startswith("report"):
        (prepared / "run").mkdir()
    assert main([STORY if word == "STORY" else word for word in shlex.split(line)]) == 2
    assert MOOT[line] in capsys.readouterr().err
