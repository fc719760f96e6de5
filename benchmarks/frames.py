"""Print the Python frames from `LLM.generate` to a rule's `chosen`, including both, outermost first.

python -m benchmarks.frames
"""

import sys
from types import FrameType

from dlstep import LLM
from dlstep.rules.threshold import Threshold


def frames() -> list[str]:
    """Return the qualified name of each frame of the first call of the rule."""
    found = list[str]()

    def profile(frame: FrameType | None, event: str, argument: object) -> None:
        if found or event != "call" or frame is None or frame.f_code is not Threshold.chosen.__code__:
            return
        while frame is not None and "LLM.generate" not in found[-1:]:
            found.append(frame.f_code.co_qualname)
            frame = frame.f_back

    llm = LLM()
    sys.setprofile(profile)
    llm.generate("Max has 53 shells.")
    sys.setprofile(None)
    return found[::-1]


if __name__ == "__main__":
    for number, name in enumerate(frames(), 1):
        print(f"{number:3} {name}")
