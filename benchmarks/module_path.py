"""Count the modules of dlstep that run between `dlstep generate` and the driver's first plan, and print them in order.

    python -m benchmarks.module_path

Not counted: modules that load the model or draw its progress, and those of the chosen strategy and rule.
"""

import sys
from types import FrameType

from dlstep.cli import main

PROMPT = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
ASIDE = ("load_engine", "_find_and_load")  # not counted, like the functions that they call; the second imports modules
LEFT_OUT = ("dlstep.strategies.", "dlstep.rules.", "dlstep.views.")


def entered() -> list[str]:
    """Return the modules whose functions are called, in the order of their first call."""
    modules, reached = dict[str, None](), False

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal reached
        name, caller = str(frame.f_globals.get("__name__", "")), frame
        if event != "call" or reached or not name.startswith("dlstep."):
            return
        while caller is not None and caller.f_code.co_name not in ASIDE:
            caller = caller.f_back
        reached = caller is None and name.startswith("dlstep.driver.")
        if caller is None and not reached and not name.startswith(LEFT_OUT):
            modules.setdefault(name)

    sys.setprofile(profile)
    main(["generate", PROMPT, "--progress", "false"])
    sys.setprofile(None)
    return [*modules]


if __name__ == "__main__":
    for number, module in enumerate(entered(), 1):
        print(f"{number:3} {module}")
