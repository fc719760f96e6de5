"""Count the modules of dlstep that run between `dlstep generate` and the driver's first plan, and print them in order.

python -m benchmarks.module_path
"""

import sys
from types import FrameType

from dlstep.cli import main

PROMPT = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
IMPORTING = "<frozen importlib._bootstrap>"  # the file name of the code that imports modules


def entered() -> list[str]:
    """Return the modules whose functions are called, in the order of their first call."""
    modules, reached = dict[str, None](), False

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal reached
        name = frame.f_globals.get("__name__", "")
        if event != "call" or reached or not name.startswith("dlstep."):
            return
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_filename != IMPORTING:
            caller = caller.f_back
        if caller is None:
            modules[name] = None
        reached = name == "dlstep.driver.torch_driver" and frame.f_code.co_name in ("run", "start", "run_prepared")

    sys.setprofile(profile)
    main(["generate", PROMPT, "--progress", "false"])
    sys.setprofile(None)
    return [*modules]


if __name__ == "__main__":
    for number, module in enumerate(entered(), 1):
        print(f"{number:3} {module}")
