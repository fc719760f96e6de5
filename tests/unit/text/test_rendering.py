"""Chat templates: rendered as transformers renders them, and stopped where they would take too long or make too much."""

import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from dlstep.models import templates
from dlstep.text import limited_worker, rendering
from dlstep.text.limited_worker import LimitedWorker
from dlstep.text.rendering import render, template_variables

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "  Be kind. "},
    {"role": "user", "content": "How many 日本 <b>&</b>?"},
    {"role": "assistant", "content": "<think>three</think>\n\nThree."},
    {"role": "user", "content": "And now?", "name": None},
]
QWEN = """\
{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not
        (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.last or (not loop.last and reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') }}
            {{- '\\n</think>\\n\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}{{- '<tools>' }}{%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
LLAMA = """\
{% set loop_messages = messages %}{% if not date_string is defined %}{% set date_string = "26 Jul 2024" %}{% endif %}
{% for message in loop_messages %}
{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}
{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"""
PARTS = """\
{%- macro turn(message, deep=1) -%}{{ message.role|upper ~ ':' ~ message.content|tojson }}
{%- if deep < 3 %}{{ turn(message, deep + 1) }}{% endif %}{%- endmacro -%}
{%- for message in messages if message.role != 'system' -%}
{% generation %}{{ turn(message) }}{% endgeneration %}{{ loop.revindex }}{{ '%s-%03d' % (message.role, loop.index) }}
{% for key, value in message|dictsort %}{{ key }}={{ value|length }};{% else %}none{% endfor %}
{%- if loop.index > 2 %}{% break %}{% endif %}{{ "{:>9}|{}".format(message.role, loop.length) }}{{ [1, (2, {'a': 'b'})] }}
{%- endfor -%}
{% set block %}{{ eos_token * 3 }}{{ dict(a=1, b=[2]).items()|list }}{% endset %}{{ block|replace('s', 'S')|indent(4) }}
{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(', ') }}{{ missing }}{{ 7 // 2 ** 2 }}
{% for row in [[1, [2, 3]], [4]] recursive %}{{ loop(row) if row is iterable else row }}{% endfor %}{{ 'x'.join(['a', 'b']) }}
{{ range(3)|list }}{{ tools is none }}{{ documents }}{{ {'k': [1, 2]}['k'][0] }}{{ (1, 2) + (3,) }}{{ [1] * 2 }}{{ -3|abs }}"""


@pytest.mark.parametrize("name", ["qwen", "llama", "parts", "chatml", "llada", "llada2"])
def test_a_template_renders_as_transformers_renders_it(name: str) -> None:
    own = {"qwen": QWEN, "llama": LLAMA, "parts": PARTS, "chatml": templates.CHATML, "llada": templates.LLADA}
    template = own.get(name, templates.LLADA2)
    without_none = [{key: value for key, value in message.items() if value is not None} for message in TALK]
    (theirs,), _ = render_jinja_template([without_none], chat_template=template, add_generation_prompt=True, **TOKENS)
    assert render(template, TALK, TOKENS) == theirs
    assert len(theirs) > 100


READS = {
    "enable_thinking": "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}",
    "reasoning_effort": "{% set reasoning_effort = reasoning_effort | default('low') %}{{ reasoning_effort }}",
    "documents": "{{ documents }}",
    "deep": "{% macro one(a) %}{{ a }}{{ deep }}{% endmacro %}{{ one(eos_token) }}",
}


@given(read=st.sets(st.sampled_from(list(READS))), set_=st.sets(st.sampled_from([*READS, "messages", "range", "a", "x"])))
def test_a_variable_can_be_set_if_the_template_reads_it(read: set[str], set_: set[str]) -> None:
    template = "".join(READS[name] for name in sorted(read)) + "{{ messages[0].content }}"
    given_values = {name: {"k": [1, None, "é"]} if name == "deep" else False for name in sorted(set_)}
    wrong = set_ - read | (set_ & {"documents"})
    if wrong:
        with pytest.raises(ValueError, match="chat_template_kwargs cannot set '"):
            template_variables(template, given_values)
    variables = template_variables(template, given_values, optional=wrong)
    assert variables == {name: value for name, value in given_values.items() if name not in wrong}
    (theirs,), _ = render_jinja_template([TALK], chat_template=template, add_generation_prompt=True, **TOKENS, **variables)
    assert render(template, TALK, TOKENS, variables=variables) == theirs


DEEP: list[Any] = []
for _ in range(9999):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("given_values", "message"),
    [
        ([1], r"must be a mapping of variables to values, got \[1\]"),
        ({"deep": float("nan")}, "must contain JSON values only"),
        ({"deep": object()}, "must contain JSON values only"),
        ({"deep": "\ud800"}, "must contain JSON values only"),
        ({"deep": DEEP}, "must contain JSON values only"),
        ({"deep": "x" * 65536}, "has 65548 characters as JSON: at most 65536 are allowed"),
    ],
)
def test_variables_are_json_of_limited_size(given_values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"chat_template_kwargs {message}"):
        template_variables(READS["deep"], given_values)


CONTINUED = {"qwen": QWEN, "llama": LLAMA, "chatml": templates.CHATML, "llada": templates.LLADA, "llada2": templates.LLADA2}


@pytest.mark.parametrize("last", ["The answer is", "Answer: ", "  def f(x):\n    ", "<|im_end|>\nso "])
@pytest.mark.parametrize("name", CONTINUED)
def test_a_last_turn_is_continued_as_transformers_continues_it(name: str, last: str) -> None:
    talk = [{"role": "user", "content": "And now? The answer is 4."}, {"role": "assistant", "content": last}]
    template = CONTINUED[name]
    (theirs,), _ = render_jinja_template([talk], chat_template=template, continue_final_message=True, **TOKENS)
    assert render(template, talk, TOKENS, continues=True) == theirs
    assert theirs.rstrip().endswith(last.strip()) and talk[-1]["content"] == last


def test_a_last_turn_that_a_template_leaves_out_is_refused() -> None:
    for template in ("{{ messages[0].content }}", "{{ messages[-1].content[:3] }}", "{{ messages[-1].content[-28:] }}"):
        with pytest.raises(ValueError, match="the last message, which the answer continues, is not in the text"):
            render(
                template, [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "four"}], TOKENS, continues=True
            )


def test_reasoning_is_found_under_each_of_its_names() -> None:
    template = "{% for m in messages %}{{ m.thinking }}|{{ m.reasoning_content }}|{{ m.content }}{% endfor %}"
    for name in ("reasoning", "thinking", "reasoning_content"):
        talk = [{"role": "assistant", "content": "4", name: "2+2"}]
        (theirs,), _ = render_jinja_template([talk], chat_template=template, add_generation_prompt=True)
        assert render(template, talk, {}) == theirs == "2+2|2+2|4"


LOOP = "{% for i in range(99999) %}"
DOUBLED = "{% set ns = namespace(x=%s) %}{% for i in range(60) %}{% set ns.x = %s %}{% endfor %}"
BOMBS = {
    "nested loops": LOOP * 4 + "{% endfor %}" * 4,
    "nested loops of one list": "{% set many = range(99999) %}" + "{% for i in many %}" * 4 + "{% endfor %}" * 4,
    "loops that print": LOOP * 3 + "xxxxxxxxxxxxxxxx" + "{% endfor %}" * 3,
    "recursive loop": "{% for i in range(9999) recursive %}{{ loop(range(9999)) }}{% endfor %}",
    "macro calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "macro calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "sums in a loop": LOOP + "{% set a = range(99999)|map('string')|map('upper')|list|unique|list %}{% endfor %}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": DOUBLED.replace("%s", "9", 1).replace("%s", "ns.x * ns.x"),
    "many characters": "{{ ('x' * 99999999999)|length }}",
    "many items": "{{ ([messages] * 999999999)|length }}",
    "doubled by +": DOUBLED.replace("%s", "'x'", 1).replace("%s", "ns.x + ns.x"),
    "doubled by ~": DOUBLED.replace("%s", "'x'", 1).replace("%s", "ns.x ~ ns.x"),
    "doubled by a list": DOUBLED.replace("%s", "'x'", 1).replace("%s", "[ns.x, ns.x]") + "{{ ns.x }}",
    "doubled by a mapping": DOUBLED.replace("%s", "'x'", 1).replace("%s", "dict(a=ns.x, b=ns.x)") + "{{ ns.x }}",
    "doubled by a block": "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set b %}{{ ns.x }}{{ ns.x }}{% endset %}"
    "{% set ns.x = b %}{% endfor %}",
    "doubled by join": DOUBLED.replace("%s", "'x'", 1).replace("%s", "[ns.x, ns.x]|join"),
    "doubled by format": DOUBLED.replace("%s", "'x'", 1).replace("%s", "'%s%s'|format(ns.x, ns.x)"),
    "replace": "{% set a = 'x' * 999999 %}{{ a.replace('x', a)|length }}",
    "replace as a filter": "{% set a = 'x' * 999999 %}{{ a|replace('x', a)|length }}",
    "translate": "{% set a = 'x' * 999999 %}{{ a.translate({120: a})|length }}",
    "center": "{{ 'x'|center(99999999999)|length }}",
    "ljust": "{{ 'x'.ljust(99999999999)|length }}",
    "expandtabs": "{{ ('\\t' * 999999).expandtabs(9999)|length }}",
    "width": "{{ '{:>99999999999}'.format(1)|length }}",
    "width of %": "{{ ('%099999999999d' % 1)|length }}",
    "width as an argument": "{{ ('%*d' % (999999999, 1))|length }}",
    "width of the filter": "{{ '%99999999999d'|format(1)|length }}",
    "indented": "{{ messages|tojson(indent=999999999)|length }}",
    "kept": "{% set ns = namespace(x=[]) %}" + LOOP + "{% set ns.x = [i, ns.x] %}{% endfor %}{{ ns.x }}",
    "deep brackets": "{{ " + "[" * 9999 + "]" * 9999 + " }}",
    "deep loops": "{% for i in messages %}" * 60 + "{% endfor %}" * 60,
    "long": "x" * 999_999,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering._worker, "seconds", 1.0)
    begun, threads = time.monotonic(), threading.active_count()
    with pytest.raises(
        ValueError, match=r"the chat template (cannot render these messages: .|has 999999 characters)"
    ) as caught:
        render(BOMBS[name], TALK, TOKENS)
    assert "MemoryError" not in str(caught.value) or "deep" in name
    assert time.monotonic() - begun < 15
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 / 0 }}",
        "{{ messages.role.x }}",
        "{{ messages|nothing }}",
        "{% include 'config.json' %}",
        "{{ messages + 1 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ messages.append(1) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ cycler.__init__.__globals__.os.popen('echo') }}",
        "{{ 'x'.join(5) }}",
    ],
)
def test_a_template_that_cannot_be_rendered_gives_a_sentence(template: str) -> None:
    with pytest.raises(ValueError, match=r"the chat template cannot render these messages: ."):
        render(template, TALK, TOKENS)


def test_a_long_conversation_is_within_the_bounds() -> None:
    talk = [TALK[0], *({"role": role, "content": "word " * 100} for _ in range(1000) for role in ("user", "assistant"))]
    for template in (QWEN, LLAMA):
        (theirs,), _ = render_jinja_template([talk], chat_template=template, add_generation_prompt=True, **TOKENS)
        assert render(template, talk, TOKENS) == theirs


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ strftime_now('%99999999d') }}", ""),
        (DOUBLED.replace("%s", "'x'", 1).replace("%s", "dict(a=ns.x, b=ns.x)") + "{{ ns.x == 1 }}", "False"),
    ],
)
def test_what_only_looks_large_is_rendered(template: str, text: str) -> None:
    assert render(template, TALK, TOKENS) == text


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="it makes more than 67108864 bytes"):
        render("{% for i in range(7000) %}{{ 'x' * 10000 }}{% endfor %}", TALK, TOKENS)


def process_of(worker: LimitedWorker) -> Any:
    """The process of a worker, after an ordinary rendering."""
    assert worker.ask("template", "{{ x }}", {"x": "ordinary"})["text"] == "ordinary"
    return worker._process


@pytest.fixture
def worker() -> Iterator[LimitedWorker]:
    worker = LimitedWorker()
    yield worker
    worker.close()


def test_a_process_renders_many_times_and_each_has_the_whole_time(worker: LimitedWorker) -> None:
    process = process_of(worker)
    worker.seconds = 1.0
    begun = time.monotonic()
    while time.monotonic() - begun < 1.5:
        assert worker.ask("template", "{% for i in range(99999) %}{% endfor %}", {})["text"] == ""
    with pytest.raises(ValueError, match="'unknown'"):
        worker.ask("template", "{{ x|unknown }}", {})
    assert process_of(worker) is process


@pytest.mark.parametrize(("bomb", "reason"), [("nested loops", "more than 1 seconds"), ("many items", "too much memory")])
def test_another_process_renders_after_one_that_was_ended(bomb: str, reason: str, worker: LimitedWorker) -> None:
    process = process_of(worker)
    worker.seconds = 1.0
    with pytest.raises(ValueError, match=reason):
        worker.ask("template", BOMBS[bomb], {"messages": TALK})
    assert process.returncode is not None
    assert process_of(worker) is not process


def test_a_process_that_was_killed_between_renderings_is_replaced(worker: LimitedWorker) -> None:
    process = process_of(worker)
    process.kill()
    process.wait()
    assert process_of(worker) is not process


@pytest.mark.parametrize("fault", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_process_that_stops_at_its_start_is_replaced(
    fault: signal.Signals, worker: LimitedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = list[Any](), limited_worker._process

    def struck(memory: int) -> Any:
        started.append(start(memory))
        monkeypatch.setattr(limited_worker, "START_SECONDS", 60.0 if started[1:] else 0.5)
        if len(started) == 1:
            started[0].send_signal(fault)
        return started[-1]

    monkeypatch.setattr(limited_worker, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(limited_worker, "_process", struck)
    assert process_of(worker) is started[1] and len(started) == 2 and started[0].returncode == -signal.SIGKILL


def test_a_process_whose_first_job_fails_is_not_used() -> None:
    worker = LimitedWorker(first="dlstep.nothing:load")
    with pytest.raises(limited_worker.NotStartedError, match=r"did not start: .*: ModuleNotFoundError: No module named"):
        worker.ask("template", "{{ text }}", {"text": "a"})
    worker.close()


def test_a_job_of_another_module_may_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: LimitedWorker) -> None:
    (tmp_path / "noisy.py").write_text("def counted(text):\n    print({}, flush=True)\n    return {'length': len(text)}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert worker.ask("noisy:counted", "abc") == {"length": 3}


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_stopped_process_is_replaced(size: int, worker: LimitedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP also stops the time limit inside the process; a large job does not even fit into its pipe."""
    worker.seconds = 0.5
    monkeypatch.setattr(limited_worker, "GRACE_SECONDS", 0.5)
    assert worker.ask("template", "{{ text }}", {"text": "a"})["text"] == "a"
    process_of(worker).send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    with pytest.raises(ValueError, match=r"it takes more than 0\.5 seconds"):
        worker.ask("template", "{{ text }}", {"text": "b" * size})
    assert time.monotonic() - begin < 30.0
    assert worker.ask("template", "{{ text }}", {"text": "c"})["text"] == "c"


def test_the_answer_to_an_interrupted_rendering_is_never_read(worker: LimitedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    process = process_of(worker)

    def interrupted(*given: object) -> None:
        process.stdin.write(pickle.dumps((10.0, "template", ("stale", {}))))
        process.stdin.flush()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(limited_worker, "_answer", interrupted)
        worker.ask("template", "{{ x }}", {})
    assert process_of(worker) is not process


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from dlstep.text.rendering import render\nprint(render('{{ messages|length }}', [{}] * 3, {}))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=100)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_threads_share_a_process() -> None:
    with ThreadPoolExecutor(8) as threads:
        texts = threads.map(lambda number: render("{{ messages[0].content }}", [{"content": str(number)}], {}), range(100))
        assert list(texts) == [str(number) for number in range(100)]


def test_a_process_ends_with_the_one_that_started_it() -> None:
    script = (
        "from dlstep.text import rendering\nprint(rendering.render('{{ 1 }}', [], {}), rendering._worker._process.pid)\n"
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-u", "-c", script], capture_output=True, text=True, check=False, timeout=100)
    text, pid = done.stdout.split()
    assert (text, done.returncode) == ("1", -signal.SIGKILL)
    end = time.monotonic() + 10
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():  # a zombie has no command
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_forked_process_starts_another_one() -> None:
    script = (
        "import os\nfrom dlstep.text.rendering import _worker, render\nrender('', [], {})\nfirst = _worker._process\n"
        "def pid():\n    assert render('{{ messages|length }}', [{}], {}) == '1'\n    return _worker._process.pid\n"
        "child = os.fork()\nif not child:\n    assert pid() != first.pid\n    raise SystemExit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\nassert pid() == first.pid\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
