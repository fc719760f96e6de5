"""Load an engine in this process, and print the bytes of its weights and how far its own memory grew meanwhile.

Pages of mapped files are not counted: the system takes them back when it needs them.
"""

import json
import re
import sys
from pathlib import Path
from threading import Thread
from time import sleep

import torch

from dlstep import LLM


def allocated() -> int:
    """The bytes of memory that belong to this process and to no file."""
    (kib,) = re.findall(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kib) << 10


def main() -> None:
    torch.set_num_threads(1)
    LLM()  # imports what loading imports
    seen = [allocated()]

    def watch() -> None:
        while True:
            seen.append(allocated())
            sleep(0.001)

    Thread(target=watch, daemon=True).start()
    llm = LLM(**json.loads(sys.argv[1]))
    seen.append(allocated())
    network = llm.engine.driver.network.model  # type: ignore[attr-defined]
    tensors = {tensor.data_ptr(): tensor.nbytes for tensor in (*network.parameters(), *network.buffers())}
    print(json.dumps([sum(tensors.values()), max(seen) - seen[0]]))


if __name__ == "__main__":
    main()
