"""Flags and YAML names of strategies and rules: looked up on those chosen, explained by their own help, never ignored."""

import os
import subprocess
import sys

import pytest

from dlstep import LLM
from dlstep.cli import main

from ..core.test_options_plugins import RULE, STRATEGY

FORGOTTEN = ("lab", "odd_rule", "odd_strategy")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder that is not on Python's path, with a rule and a strategy; modules from it are forgotten afterwards."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "odd_rule.py").write_text(RULE.format(extra="") + "\nRULE = Odd\n")
    (tmp_path / "odd_strategy.py").write_text(STRATEGY.format(extra="") + "\nSTRATEGY = Odd\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    before = dict(sys.modules)
    yield tmp_path
    for name in [name for name in sys.modules if name not in before and name.partition(".")[0] in FORGOTTEN]:
        del sys.modules[name]


@pytest.fixture
def chosen(monkeypatch):
    """The strategies that commands would decode with; nothing is decoded."""
    made = []

    def generate(self, *arguments, **options):
        made.append(self.engine.first.strategy)
        return []

    monkeypatch.setattr(LLM, "generate", generate)
    return made


@pytest.fixture
def help_of(capsys):
    """Shows the help of `dlstep generate` with these options."""

    def shown(options=""):
        with pytest.raises(SystemExit, match="0"):
            main(f"generate {options} --help".split())
        return " ".join(capsys.readouterr().out.split())

    return shown


def test_help_explains_the_options_of_the_strategy_and_the_rule_that_are_chosen(help_of):
    plain = help_of()
    assert "strategy multi_bd: --block_size" in plain and "rule threshold: --accept_threshold" in plain
    text = help_of("--decoding-strategy dual_cache --rule=quota")
    assert "strategy dual_cache: --block_size INT Positions of a block. (at least 1; default 32)" in text
    assert "rule quota: --steps_per_block" in text and "--cache {none,prefix,dual}" in text
    assert "--accept_threshold" not in text.partition("examples:")[2].partition("engine:")[2] and "--num_pages" in text
    assert "strategy diffusion_gemma: --canvas_length" in help_of("--model tiny-canvas")
    assert "strategy multi_bd_edit:" in help_of("--sampling_mode edit")


def test_flags_may_have_hyphens_and_so_may_names_in_yaml(tmp_path, printed, chosen):
    path = tmp_path / "options.yaml"
    path.write_text("decoding-strategy: d2f\nrule: quota\nsteps-per-block: 3\nbuffer_size: 2\n")
    printed(f"generate a --config {path} --buffer-size 3")
    printed("generate a --decoding_strategy d2f --rule quota --steps_per_block=3 --buffer-size=3")
    assert chosen[0] == chosen[1] and "D2F" in repr(chosen[0]) and "Quota(steps_per_block=3," in repr(chosen[0])


@pytest.mark.parametrize("option", ["rule: lab.odd_rule", "rule: ./lab/odd_rule.py", "rule: 'lab:Odd'", "inner: a.b"])
def test_a_path_in_a_yaml_file_imports_nothing(option, folder, failure):
    (folder / "options.yaml").write_text(option)
    message = failure("generate a --config options.yaml")
    assert f"--config: in the file 'options.yaml', {option.partition(':')[0]}=" in message
    assert "is a path, which imports a module: give it on the command line, as --" in message
    assert "lab.odd_rule" not in sys.modules


@pytest.mark.parametrize(
    "strategy, rule",
    [
        ("odd_strategy:Odd", "./lab/odd_rule.py"),
        ("odd_strategy.py", "lab.odd_rule"),
        ("odd_strategy.py", "lab.odd_rule:Odd"),
    ],
)
def test_files_of_ones_own_are_found_in_the_current_folder(rule, strategy, folder, printed, failure, help_of, chosen):
    assert "rule Odd: --odd NUMBER How odd. (at least 0.0, at most 1.0; default 0.5)" in help_of(f"--rule {rule}")
    printed(f"generate a --decoding_strategy {strategy} --rule {rule} --odd 7")
    (made,) = chosen
    assert "odd=7" in repr(made) and "rule=Odd(odd=0.5)" in repr(made)
    assert "error: --odd: " in failure(f"generate a --rule {rule} --odd 1.5")
    assert "--oddd 1: did you mean --odd?" in failure(f"generate a --rule {rule} --oddd 1")
    assert str(folder) not in sys.path


SCRIPT = """
from dlstep import LLM, SamplingParams

{code}

for given in (Odd(odd=2), Odd):
    llm = LLM(decoding_strategy=given, block_size=4) if given is Odd else LLM(decoding_strategy=given)
    (output,) = llm.generate("a", SamplingParams(max_tokens=4, ignore_eos=True), progress=False)
    print(type(llm.state.strategy).__module__, llm.state.strategy.odd, len(output.token_ids))
"""


@pytest.mark.stress
def test_a_strategy_by_value_from_a_script_and_from_nowhere(tmp_path):
    """A class whose module is `__main__`, with a file and without one, as in a notebook."""
    text = SCRIPT.format(code=STRATEGY.format(extra=""))
    (tmp_path / "multi_bd.py").write_text(text)  # the name of another strategy, which must not be looked up
    for command in ([str(tmp_path / "multi_bd.py")], ["-c", text]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env={**os.environ})
        assert done.stdout == "__main__ 2 4\n__main__ 3 4\n", done.stderr
