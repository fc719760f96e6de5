"""Mutants of batches and of replicas: what a checkpoint keeps, keys of contents, the choice of an engine, its renewal."""

from .catalogue import change

LINES, CHECKPOINT, DESK = "batch/lines.py", "batch/checkpoint.py", "batch/desk.py"
PLACEMENT, FRONT, FLEET = "serve/router/placement.py", "serve/router/front.py", "serve/router/fleet.py"
LINK, REPLICA, ACTORS = "serve/router/link.py", "serve/router/replica.py", "batch/actors.py"

MUTANTS = (
    change("a failure is kept as an answer", LINES, "< TRY_AGAIN", "< 600"),
    change("the order of fields is content", LINES, "[facts, content], sort_keys=True)", "[facts, content])"),
    change("a key forgets the engine", LINES, "json.dumps([facts, content]", "json.dumps([content]"),
    change("of equal contents the last is decoded", LINES, "reversed(list(enumerate(keys)))", "list(enumerate(keys))"),
    change("an answer that comes twice counts twice", CHECKPOINT, "        if answer_id(key) in self._known:\n            return\n", ""),
    change("the output is written in place", CHECKPOINT, 'new = self._out.with_name(f"{self._out.name}.new")', "new = self._out"),
    change("answers to no request are dropped silently", CHECKPOINT, "        if foreign:\n", "        if foreign and not self._out:\n"),
    change("a checksum leaves out whose answer it is", LINES, "{checksum(sealed)}", "{checksum(sealed['response'])}"),
    change("the lock is shared", "engine/run_lock.py", "fcntl.LOCK_EX", "fcntl.LOCK_SH"),
    change("an answer says what depends on the batch", DESK, 'MEASURED = ("nfe", "tokens_per_forward")', 'MEASURED = ("tokens_per_forward",)'),
    change("load does not bound the choice of a replica", PLACEMENT, " if standing.requests < most]", "]"),
    change("a replica may have all requests", PLACEMENT, "ceil(SHARE * (requests + 1) / replicas)", "requests + 1"),
    change("the shortest prefix is preferred", PLACEMENT, "(-standing.known,", "(standing.known,"),
    change("the first page is forgotten first", PLACEMENT, "for key in reversed(keys):", "for key in keys:"),
    change("what was told is begun again", FRONT, "if others and ticket.can_begin_again:", "if others:"),
    change("a fork goes to any engine", FRONT, "return keeper if keeper.takes_forks else None", "return self.replicas.taker(())"),
    change("a silent engine is not killed", LINK, "if self._silence.seconds >= limit:", "if False:"),
    change("what the server ended itself takes no room", REPLICA, "        self.abandoned.add(ticket.id)\n", ""),
    change("a renewal waits for no answer", FLEET, "                await replica.until(lambda replica=replica: not replica.sent or replica.phase != \"resting\")\n", ""),
    change("an actor that was given up gets a successor", ACTORS, "for node in nodes) - len(self._slots)\n        return max(0, min(most,", "for node in nodes)\n        return max(0, min(most,"),
    change("the GPUs of an actor lie on any nodes", ACTORS, 'most = sum(int(node.get("GPU", 0)) // size for node in nodes)', 'most = int(sum(node.get("GPU", 0) for node in nodes)) // size'),
    change("an actor may load for ever", ACTORS, "now - slot.begun > loading:", "False:"),
)  # fmt: skip
