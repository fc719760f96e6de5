"""On a laptop nothing is needed that only Linux has: neither triton nor Unix modules of Python."""

import subprocess
import sys

# psutil, which transformers uses where it is installed, needs `resource` on Linux.
MISSING = ("resource", "fcntl", "triton", "psutil")
CODE = """
import sys

sys.modules.update(dict.fromkeys({missing!r}))  # importing them fails

from importlib import import_module
from pkgutil import walk_packages

import dlstep
import dlstep_kernels

for module in ("llm", "session", "cli.main", "driver", "models", "views", "tiny", "testing", "testing.laws", "testing.shadow"):
    import_module(f"dlstep.{{module}}")
# Written in triton; run in a sandbox, on Linux alone; parts of lm_eval and of Ray, which are installed apart.
skipped = ["dlstep_kernels.gpu", "dlstep.batch.ray_pool"]
skipped += [f"dlstep.evaluate.{{name}}" for name in ("_programs", "harness", "local_tasks")]
for package in (dlstep, dlstep_kernels):
    for found in walk_packages(package.__path__, f"{{package.__name__}}."):
        if not found.name.startswith((*skipped,)):
            import_module(found.name)

output = dlstep.LLM(device="cpu").generate("Max has 53 shells. Later Max buys 39 more. How many shells does Max have?")[0]
assert output.finish_reason == "stop" and "92" in output.text, output
print("answered")
"""


def test_everything_imports_and_an_answer_comes():
    done = subprocess.run([sys.executable, "-c", CODE.format(missing=MISSING)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "answered\n"
