"""Health check of a container: exit code 0 if the server is ready, else 1. It kills a server that hangs.

Docker restarts containers that exit, not those that are unhealthy. If the server accepts three
connections without answering one, this check therefore kills it; the container exits and the
restart policy restarts it. A server that answers is never killed: while it loads, drains or restarts
its engine, it is merely not ready.

The container needs an init process (`init: true` in compose, `docker run --init`) whose only child is
the server, because the kernel does not let a process inside a container kill process 1.
"""

import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

URL, TRIES, SECONDS = "http://127.0.0.1:8000", 3, 10.0
HUNG, NOT_READY, READY = "hung", "not ready", "ready"


def state(url: str, seconds: float) -> str:
    """Return `READY`, `NOT_READY`, or `HUNG` if the server accepts a connection but does not answer within `seconds`."""
    try:
        urllib.request.urlopen(f"{url}/ready", timeout=seconds).close()
    except urllib.error.HTTPError:
        return NOT_READY
    except TimeoutError:
        return HUNG
    except urllib.error.URLError as error:
        return HUNG if isinstance(error.reason, TimeoutError) else NOT_READY
    except OSError:
        return NOT_READY
    return READY


def kill_children(init: int) -> list[int]:
    """Kill the children of the init process, which are the server. Return their pids."""
    pids = [int(pid) for pid in Path(f"/proc/{init}/task/{init}/children").read_text(encoding="ascii").split()]
    pids = [pid for pid in pids if pid != os.getpid()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def check(url: str = URL, seconds: float = SECONDS, init: int = 1) -> int:
    """Check the server, and kill it if it hangs. Return the exit code."""
    status = HUNG
    for _ in range(TRIES):
        status = state(url, seconds)
        if status != HUNG:
            break
    if status == HUNG:
        print(f"no answer within {seconds:g} s, {TRIES} times: killed {kill_children(init)}", file=sys.stderr)
    return int(status != READY)


if __name__ == "__main__":
    sys.exit(check())
