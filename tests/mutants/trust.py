"""Changes to what keeps users of one device apart: lines, histories, the loop, updates, seeds, values, saved decodes."""

from .catalogue import COMMIT, FINISH, LIFECYCLE, SCHEDULE, Mutant, change

PLAN, QUEUE, UPDATES, SHADOW = "core/plan.py", "core/queue.py", "core/updates.py", "testing/shadow.py"
TRACE, TRACE_FILE, CODEC, CHECKS = "core/trace.py", "core/trace_file.py", "core/codec.py", "core/checks.py"
DECODE, HISTORY, SESSION, SHARING, STREAM = "decode.py", "driver/history.py", "session.py", "sharing.py", "stream.py"
DRIVER = "driver/torch_driver.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a line folds the samples only",
        PLAN,
        (
            ("parts = [span.mark() for span in plan.spans]", "parts: list[int] = []"),
            ("if plan.releases or plan.preemptions or plan.admissions or plan.grants:", "if plan.line < 0:"),
            ("hash((plan.line, plan.step, plan.num_pages, *parts))", "hash((plan.line, plan.step, *parts))"),
        ),
    ),
    change("a line does not say which tokens were fed", PLAN, "self.start, self.tokens, self.end,", "self.start, self.end,"),
    change(
        "a line does not say whose place it takes",
        PLAN,
        "hash((plan.line, plan.step, plan.num_pages, *parts))",
        "hash((plan.line, plan.step, *parts))",
    ),
    change(
        "a place is taken without a mismatch of lines",
        SHADOW,
        "            if found is None:\n                raise LineMismatch(",
        "            if found is None and self.histories:\n                found = self.histories[-1]\n"
        "            if found is None:\n                raise LineMismatch(",
    ),
    change(
        "a place is taken without a mismatch of lines",
        HISTORY,
        "        if found is None:\n            raise LineMismatch(",
        "        if found is None:\n            found = self.main\n        if found is None:\n            raise LineMismatch(",
    ),
    change(
        "a new line keeps the tables of the one before",
        HISTORY,
        "            self.tables.clear()\n",
        "",
    ),
    change("a copied history has other tables", HISTORY, "        self.tables.copy(other.tables)\n", ""),
    change(
        "a copied history has no keys",
        "models/networks/batch.py",
        "[(*each.key_pages, *each.value_pages, each.carried)",
        "[(*each.value_pages, each.carried)",
    ),
    change(
        "a driver's histories hold the driver",
        DRIVER,
        "make = partial(_new_history, self.network, config, self._target, captures=self._captures)",
        "make = lambda pages: _new_history(self.network, config, self._target, pages, captures=self._captures)",
    ),
    change(
        "the history that ran last holds its memory",
        DRIVER,
        "        self._now = self._histories.main  # the one",
        "        # the one",
    ),
    change(
        "a history that goes holds its memory",
        HISTORY,
        "            del self._others[0]\n",
        "            gone = self._others.pop(0)\n",
    ),
    change(
        "a compiled layer holds itself",
        "models/compiled.py",
        "            layer.__class__ = _compiled(type(layer), backend)\n",
        "            layer.forward = _compiled(type(layer), backend).forward.__get__(layer)\n",
    ),
    change(
        "a router holds itself",
        "models/routing.py",
        "            module.__class__ = Router\n",
        "            module.forward = Router.forward.__get__(module)\n",
    ),
    change(
        "re keeps names that clients make up",
        "serve/errors.py",
        "return 0 < len(name) <= LONGEST_NAME and",
        "return 0 < len(name) and",
    ),
    change(
        "prompts are counted after they are encoded",
        "serve/translate.py",
        "    _check_count(facts, len(prompts), body.n or 1)\n",
        "",
    ),
    change(
        "any number of texts may wait",
        "serve/worker.py",
        "if self._tasks >= self._most:",
        "if self._tasks < 0:",
    ),
    change("an error of a start holds weights and pages", "engine.py", "        undone.push(_free_memory)\n", ""),
    change(
        "the causes of an error hold pages",
        "engine.py",
        "        error = error.__cause__ or error.__context__\n",
        "        break\n",
    ),
    change(
        "pages get memory that forwards keep",
        "driver/memory.py",
        "    free, _ = torch.cuda.mem_get_info(device)  # forwards keep memory that torch does not count: sums of ranks, NCCL\n",
        "",
    ),
    change("only the last forward of a plan runs", DRIVER, "for gathered in forwards:", "for gathered in forwards[-1:]:"),
    change("a history stays on the line before", DRIVER, "self._now.line = samples.line", "self._now.line = self._now.line"),
    change(
        "an embedding that is blended is looked up",
        "models/networks/plain.py",
        "        if batch.soft is None:",
        "        if batch.soft is not self:",
    ),
    change(
        "a canvas finds what it left two forwards before",
        "models/networks/canvas.py",
        "index_copy_(0, carry.left,",
        "index_copy_(0, carry.found,",
    ),
    change(
        "a device that was lost is caught up with by one forward",
        DECODE,
        "        while not self._state.done and under_way and self._without_faulty(lambda: self._ahead(under_way)) >= before:\n            self._forward()\n",
        "",
    ),
    change(
        "progress after a loss is measured by the state's strategy",
        DECODE,
        "return sum(measured(sequence, self._state.step) for sequence in live)",
        "return sum(self._state.strategy.measure(sequence) for sequence in live)",
    ),
    change(
        "an update is dropped: waiting to finished in one step",
        UPDATES,
        "(*reversed(ended), *moved)",
        "(*[s for s in reversed(ended) if s.goal.request.arrival in known], *moved)",
    ),
    change(
        "updates repeat what is settled",
        UPDATES,
        "return Update(sequence, max(earlier.settled, len(request.prompt)))",
        "return Update(sequence, len(request.prompt))",
    ),
    change(
        "updates tell more than the answer",
        UPDATES,
        "self.sequence.settled if ending is None else ending.end",
        "self.sequence.settled",
    ),
    change("the window of an update begins too early", UPDATES, "if self.stop <= position <", "if self.start <= position <"),
    change(
        "endings come in no order",
        UPDATES,
        "ended = [after.finished[request_id] for request_id in islice(after.ended, len(after.ended) - len(before.ended))]",
        "ended = [after.finished[request_id] for request_id in islice(after.ended, 1)]",
    ),
    change(
        "who held pages waits behind who never did",
        QUEUE,
        "(*sequences, *self.front)",
        "(*self.front, *sequences)",
    ),
    change(
        "who held pages is never taken from the queue",
        QUEUE,
        "front = tuple([sequence for sequence in self.front if sequence.goal.request.arrival not in gone])",
        "front = self.front",
    ),
    change(
        "the queue begins behind its oldest",
        QUEUE,
        "while head < self.tail and head not in back:",
        "while head < self.tail:",
    ),
    Mutant(
        "a step is taken by whoever has the id",
        COMMIT,
        (
            ("answers = {span.arrival: (span, rows)", "answers = {span.id: (span, rows)"),
            ("answers.get(before.goal.request.arrival)", "answers.get(before.goal.request.id)"),
            ("(admission, waiting.get(admission.arrival))", "(admission, next(iter(waiting), None))"),
        ),
    ),
    change("who was aborted while entering keeps its pages on the device", COMMIT, "[told:] + gone + tuple", "[told:] + tuple"),
    change("endings are told again with every plan", COMMIT, "state.releases[told:]", "state.releases[0:]"),
    change(
        "pages that led to an error can be found",
        COMMIT,
        "            cache = cache.unpublish(before.pages)\n",
        "            pass\n",
    ),
    change("equal prefixes are computed side by side", SCHEDULE, "        if coming_key in coming:\n            return\n", ""),
    change("a long prefix is found in part", SCHEDULE, "if not found and start + length >= sequence.final:", "if not found:"),
    change("the engine's seed is not in the seeds", LIFECYCLE, "derived_seed(state.config.seed, ", "derived_seed(0, "),
    change("equal requests have equal seeds", LIFECYCLE, "request.prompt, request.index)", "request.prompt, 0)"),
    change("an id past the tokenizer's comes in", LIFECYCLE, "max(request.prompt) >= spec", "max(request.prompt) > spec"),
    change(
        "an aborted answer ends where it is final",
        LIFECYCLE,
        "ended(sequence, reason, sequence.settled, words)",
        "ended(sequence, reason, max(sequence.final, len(sequence.request.prompt)), words)",
    ),
    change(
        "what is adopted counts as stored",
        LIFECYCLE,
        "_queued(state, forgotten(sequence.asking(request), state))",
        "_queued(state, sequence.asking(request))",
    ),
    change(
        "a request's stop ids end with the ends of sequence",
        FINISH,
        "ids = params.stop_token_ids if params.ignore_eos else",
        "ids = () if params.ignore_eos else",
    ),
    change("a long stop string is missed beside a short one", FINISH, "keep = max(len(stop)", "keep = min(len(stop)"),
    change(
        "positions past the shared ones are one too few",
        "core/block.py",
        "tuple(range(start, stop))",
        "tuple(range(start, stop - 1))",
    ),
    change(
        "a plan of an earlier step is replayed",
        TRACE,
        "                since = []  # no earlier plan goes on from here\n",
        "                pass\n",
    ),
    change(
        "a trace makes values of any class",
        CODEC,
        "and is_dataclass(cls) and issubclass(cls, Options | Extra)",
        "and is_dataclass(cls)",
    ),
    change(
        "a trace imports what it names",
        CODEC,
        "    if module_name not in sys.modules:\n",
        "    import_module(module_name)\n    if module_name not in sys.modules:\n",
    ),
    change(
        "a field that is gone is not missed",
        TRACE_FILE,
        "            if name not in sums or name not in others:\n                return",
        "            if name not in sums or name not in others:\n                continue\n                return",
    ),
    change(
        "a trace that was cut off is read", TRACE_FILE, "    if len(events) != expected:\n", "    if len(events) > expected:\n"
    ),
    change(
        "a saved trace is written over in place",
        TRACE_FILE,
        '    target = path.with_name(f".{path.name[:100]}.{token_hex(4)}")\n    try:\n        with target.open("x"',
        '    target = path\n    try:\n        with target.open("w"',
    ),
    change("a truth is a number", CHECKS, "type(given) is not int or not -_WORD", "not isinstance(given, int) or not -_WORD"),
    change("limits of optional values are not looked at", CHECKS, "else get_args(hint)\n    bounds", "else ()\n    bounds"),
    change(
        "going back keeps the samples",
        SESSION,
        "state, events, self._samples = self._points",
        "state, events, _ = self._points",
    ),
    change("a fork computes its prefix anew", SESSION, "and self._decode.fork()", "and not self._decode"),
    change("a fingerprint leaves the configuration out", "models/fingerprint.py", '"config": effective(', '"config": type('),
    change(
        "the growth of a chain is not looked at", "models/tokenizer_limits.py", "if growth > MOST_GROWTH:", "if not growth:"
    ),
    change("names may be stated twice", "models/reading.py", "if len(found) < len(pairs):", "if not pairs:"),
    change(
        "groups may be repeated whatever they hold",
        "models/regex_limits.py",
        "isinstance(item, _Group) and item.varies",
        "False",
    ),
    change("a fingerprint leaves the dtype out", "models/fingerprint.py", "str(checkpoint.network.dtype)", '""'),
    change(
        "a digest is remembered of a file that changed just now",
        "models/digests.py",
        "> begun - SETTLED_NS",
        "> begun + SETTLED_NS",
    ),
    change("a digest reads one piece of a file", "models/digests.py", "range(0, file.size, PIECE) or (0,)", "(0,)"),
    change(
        "a stream that nobody holds is decoded on",
        STREAM,
        "finalize(self, shared.abandon, feed.id)",
        "finalize(self, int, feed.id)",
    ),
    change(
        "who shares a loop hears of one request",
        SHARING,
        "                feed.push(update)\n",
        "                feed.push(updates[0])\n",
    ),
    change(
        "a policy overrides what a request brings",
        "policy.py",
        "        if params.options:\n            return params\n",
        "",
    ),
    change("a policy has its bounds one too low", "policy.py", "live <= most", "live < most"),
    change(
        "a policy counts the live requests only",
        "sharing.py",
        "len(self._decode.state.live) + len(self._entering)",
        "len(self._decode.state.live)",
    ),
)
