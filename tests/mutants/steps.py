"""Mutants of steps: frames, kept requests, forks, and texts in terminals."""

from .catalogue import Mutant, change

FRAMES, FORKS, KEPT, STEPS = "views/frames.py", "engine/overrides.py", "serve/router/kept.py", "serve/engine_steps.py"
FORKING, CHOICES, PAGE, CHOOSABLE = (
    "serve/http/forking.py",
    "serve/http/choices.py",
    "serve/http/page_files.py",
    "serve/http/choosable.py",
)
USAGE, ERRORS, WORDS, TICKETS, RECORDINGS = (
    "core/usage.py",
    "serve/http/errors.py",
    "text/words.py",
    "serve/router/tickets.py",
    "serve/http/recordings.py",
)

MUTANTS: tuple[Mutant, ...] = (
    change(
        "a frame is dropped where nothing settles",
        FRAMES,
        "            yield sequence, frame\n",
        "            if frame.tokens:\n                yield sequence, frame\n",
    ),
    change(
        "frames: undecided positions show what is fed",
        FRAMES,
        "        for position in block.undecided:\n",
        "        for position in ():\n",
    ),
    change("frames: the window goes beyond the answer", FRAMES, "min(block.end, limit)", "block.end"),
    change(
        "frames: an ending from outside makes none",
        FRAMES,
        "            case Abort(id=request_id) | Fail(id=request_id):",
        "            case Fail(id=request_id):",
    ),
    change(
        "frames: who lost its pages is not told",
        USAGE,
        "self.lost, self.pages = self.lost or self.pages > 0, 0",
        "self.pages = 0",
    ),
    change("frames: shared pages are not counted", USAGE, "usage.pages = len(admission.shared)", "usage.pages = 0"),
    change(
        "frames: a fork's first one tells no token",
        FRAMES,
        "last._replace(tokens=tokens, probabilities=chances, fed=None",
        "last._replace(fed=None",
    ),
    change("frames: rivals stand at the wrong positions", FRAMES, "begin = place * width", "begin = 0"),
    change("frames may come in any order", FRAMES, "len(frame.tokens)) != self._tokens:", "len(frame.tokens)) < 0:"),
    change(
        "a fork begins a step too early", STEPS, "sequences[origin.seq - first]", "sequences[max(0, origin.seq - first - 1)]"
    ),
    change("a fork of a fork counts its steps from 0", STEPS, "sequences[origin.seq - first]", "sequences[origin.seq]"),
    change("a fork keeps its options", STEPS, "with_changes(sequence, dict(origin.changes)", "with_changes(sequence, dict()"),
    change("a fork keeps its seed", FORKS, "request.seed if seed is None else seed", "request.seed"),
    change("the engine keeps what is dropped", STEPS, "        self._kept.pop(request_id, None)\n", "        pass\n"),
    change(
        "the engine keeps frames of what has ended", STEPS, "        if over:\n            del self._frames[request_id]\n", ""
    ),
    change(
        "kept requests are everybody's",
        KEPT,
        "return self._requests.get(owner, {}).get(request_id)",
        "return next((held[request_id] for held in self._requests.values() if request_id in held), None)",
    ),
    change(
        "kept requests of others are listed",
        KEPT,
        "return list(self._requests.get(owner, {}).values())",
        "return [each for held in self._requests.values() for each in held.values()]",
    ),
    change(
        "the newest request is dropped first",
        KEPT,
        "next(iter(self._requests[owner].values()))",
        "next(reversed(self._requests[owner].values()))",
    ),
    change("the first key loses its kept requests", KEPT, "max(held, key=held.__getitem__)", "next(iter(self._requests))"),
    change("kept requests have no bound in size", KEPT, ", (self._sizes, self._positions)):", ",):"),
    change("what a fork waits for is dropped", KEPT, "            elif not ticket.forks:", "            elif True:"),
    change("what waits in the queue is kept for ever", KEPT, "ticket.submit = ticket.submit._replace(keeps=False)", "pass"),
    change("what died is still kept", KEPT, "if any(ticket.keeper == number for ticket in request.tickets):", "if False:"),
    change("forks are not checked at the door", FORKING, "        adopt(first, sequence, 0)\n", ""),
    change("an ended answer can be forked at its end", FORKING, "seq >= last.seq:", "seq > last.seq:"),
    change(
        "a slow reader misses frames",
        CHOICES,
        "frame, self._frames = ticket.frames[number], number + 1",
        "frame, self._frames = ticket.frames[number], len(ticket.frames)",
    ),
    change(
        "an answer that the engine lost has no last frame",
        TICKETS,
        "if self.frames and self.frames[-1].ending is None:",
        "if False:",
    ),
    change("frames that are known are sent again", RECORDINGS, "after + 1 - ticket", "after - ticket"),
    change("the page may be any file of its folder", PAGE, "if path.suffix in TYPES and path.is_file()", "if path.is_file()"),
    change("the page lets scripts of others in", PAGE, "script-src 'self';", "script-src *;"),
    change("every option may be chosen", CHOOSABLE, "    return not refused\n", "    return True\n"),
    change("rules that are refused are offered", CHOOSABLE, "per_request=not why,", "per_request=True,"),
    change(
        "bodies that nest too deeply are told in the parser's words",
        "serve/http/bodies.py",
        '    "recursion limit exceeded": "it nests lists or objects too deeply",\n',
        "",
    ),
    change(
        "half a surrogate pair is told in the parser's words",
        "serve/http/bodies.py",
        '    "lone leading surrogate in hex escape": HALF,\n',
        "",
    ),
    change(
        "marks of direction reach terminals",
        WORDS,
        "c if c.isprintable() or c in",
        'c if c.isprintable() or c in "\\u202e" or c in',
    ),
)
