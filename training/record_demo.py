"""Record the decode that `dlstep demo` shows while it imports torch: `make recorded`.

A test compares the file with a new recording, so that it shows what the embedded model answers.
"""

import json
from typing import Any

from dlstep import LLM, SamplingParams, tiny
from dlstep.views.frames import recording

MODEL, OPTIONS = "tiny-bd", {"buffer_size": 1, "accept_threshold": 0.9}
PROBLEMS, SEED, MAX_TOKENS = 2, 2, 64
DIGITS = 3  # of probabilities, which differ a little between machines


def made() -> dict[str, Any]:
    """Return a new recording, with rounded probabilities."""
    llm = LLM(MODEL, device="cpu", **OPTIONS)
    session = llm.session()
    for problem in tiny.problems(PROBLEMS, SEED):
        session.submit(problem.prompt, SamplingParams(max_tokens=MAX_TOKENS))
    session.run()
    return json.loads(json.dumps(recording(session.trace, MODEL)), parse_float=lambda text: round(float(text), DIGITS))


def main() -> None:
    """Write the file that the package ships."""
    tiny.RECORDED.write_text(json.dumps(made(), separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
