"""Mutants of tensor parallel: how networks are cut, how parts of samples merge, how ranks keep together."""

from .catalogue import change

VOCABULARY, SHARDING, RANKS = "dlstep_kernels/vocabulary.py", "models/sharding.py", "models/ranks.py"
CONDUCTOR, CREW, WIRE = "ranks/conductor.py", "ranks/crew.py", "ranks/wire.py"

ADD_UP, COMMONS, SYMMETRIC = "dlstep_kernels/gpu/add_up.py", "dlstep_kernels/commons.py", "models/symmetric.py"
HEAD, PARTS = "dlstep_kernels/gpu/head.py", "dlstep_kernels/gpu/parts.py"

MUTANTS = (
    change("a program that gave up counts on", ADD_UP, "tl.where(alone, -1, count)", "count"),
    change("nobody reads the word that ends waiting", ADD_UP, "            alone = turn >= OVER", "            alone = turn > OVER * OVER"),
    change("ranks do not wait for sums of parts", ADD_UP, "alone = _await(pads, MOST + program,", "alone = False\n        _await(pads, 0 * program,"),
    change("sums are rounded after each addition", ADD_UP, "            total += numbers.to(tl.float32)", "            total = (total + numbers.to(tl.float32)).to(source.dtype.element_ty).to(tl.float32)"),
    change("sums begin with one's own numbers", ADD_UP, "        if other == RANK:\n            numbers = tl.load(source", "        if other == 0:\n            numbers = tl.load(source"),
    change("parts are not whole vectors", COMMONS, "count % (16 * size) == 0", "count % 16 == 0"),
    change("a rank alone has memory in common", SYMMETRIC, "if commons is not None and all(every) else None", "if commons is not None else None"),
    change("programs are as many as this device runs", SYMMETRIC, "programs=min(programs)", "programs=programs[dist.get_rank()]"),
    change("giving up leaves one group out", SYMMETRIC, "            commons.gone.fill_(1)", "            commons.gone.fill_(0)"),
    change("the kernel draws numbers of the first ids", HEAD, "_race(x, peak, inverse, key, start_id, ROWS", "_race(x, peak, inverse, key, start, ROWS"),
    change("the kernel lists a rank's own numbers of ids", HEAD, "found = _first_of(peak, x, ids, HIGHEST)\n", "found = _first_of(peak, x, column, HIGHEST)\n"),
    change("the last tile of a rank reaches into the next one's ids", HEAD, "allowed = (column < width) & (ids < vocab_size)", "allowed = (ids < vocab_size)"),
    change("named ids have the logits of rank 0", HEAD, "gather(0, owners[None])", "gather(0, 0 * owners[None])"),
    change("ranks have parts of their own", HEAD, "splits = divided_up(cut.most, ", "splits = divided_up(max(cut.count, 1), "),
    change("penalties are taken off a rank's own numbers of ids", HEAD, "tl.where(ids[None, :] == penalised", "tl.where(column[None, :] == penalised"),
    change("the second rank's keys are lost", PARTS, "torch.cat(exchange(parts.keys), 1)", "torch.cat([exchange(parts.keys)[0]] * len(exchange(parts.keys)), 1)"),
    change("each rank draws the numbers of the first ids", VOCABULARY, "perturbed(scores, settings, cut.first)", "perturbed(scores, settings)"),
    change("the first rank that ties wins", VOCABULARY, "first_best(raced.T, sampler.ties)", "first_best(raced.T, \"lowest\")"),
    change("probabilities are those among a rank's own ids", VOCABULARY, "total = totals.sum(0)", "total = totals.gather(0, place)[0]"),
    change("scores are relative to a rank's own peak", VOCABULARY, "return torch.stack(peaks).amax(0)", "return peaks[0]"),
    change("a rank forbids the mask at another id", VOCABULARY, "allowed[:, mask_id - cut.first]", "allowed[:, 0]"),
    change("penalties are taken off other ids", VOCABULARY, "Penalty(settings.penalty.ids - cut.first,", "Penalty(settings.penalty.ids,"),
    change("padding of the last rank's logits stays", VOCABULARY, ", dim=1)[:, : cut.total]", ", dim=1)"),
    change("filters see a part of a row", VOCABULARY, "settings.top_k is not None or settings.top_p", "settings.top_p"),
    change("the margin is that of one rank", VOCABULARY, "torch.cat([next(lines), next(lines)]).topk(2, 0)", "torch.stack([next(lines)[0], next(lines)[0]]).topk(2, 0)"),
    change("every rank adds the bias", SHARDING, "Cut(-1, start, stop) if kind == \"colwise\" else Cut(None)", "Cut(-1, start, stop) if kind == \"colwise\" else Cut(-1, 0, module.out_features)"),
    change("key heads that are fewer than ranks are not repeated", SHARDING, "first = ranks.rank * heads // ranks.size", "first = ranks.rank * own"),
    change("gate and up are cut as one", SHARDING, "_even(name, width, ranks), halves=packed)", "_even(name, width * (1 + packed), ranks))"),
    change("an id of another rank has the first row", SHARDING, "self.ranks.add_up(found.masked_fill(elsewhere[..., None], 0.0))", "self.ranks.add_up(found)"),
    change("an interrupt is not held back", "ranks/interrupts.py", "        waiting.append(number)", "        raise KeyboardInterrupt"),
    change("an interrupt that waited is lost", "ranks/interrupts.py", "    if waiting:\n        signal.raise_signal", "    if not waiting:\n        signal.raise_signal"),
    change("a second interrupt waits, too", "ranks/interrupts.py", "        if waiting:\n            raise", "        if waiting and not number:\n            raise"),
    change("a forward that failed leaves the leader where it was", "decode.py", "self._leader.rewind(self._state)  # other", "pass  # other"),
    change("ranks do not compare their lines", WIRE, "        if len(set(values)) == 1:", "        if values:"),
    change("a rank forgets its own number", WIRE, "self._verdict([self._value, *self._wire.values()])", "self._verdict(self._wire.values())"),
    change("lines of a plan that no history has are not compared", "driver/torch_driver.py", "                if meanwhile is not None:\n                    meanwhile()\n", ""),
    change("samples are told a second time", CONDUCTOR, "        if not isinstance(event, Samples):\n            self._changes.append(event)", "        self._changes.append(event)"),
    change("nobody says which rank is gone", CREW, "self._error, self.lost, calls = error, str(error), list", "self._error, self.lost, calls = error, \"the group ended\", list"),
    change("a rank that gives no sign of life is waited for", CREW, "if self.silent > limit else None", "if self.silent > 1e9 else None"),
    change("what a rank cannot import is no reason", "processes/child.py", "    try:\n        target, arguments = pickle.loads(packed)\n", "    target, arguments = pickle.loads(packed)\n    try:\n"),
    change("an exception that is no RuntimeError leaves ranks waiting", CONDUCTOR, "        except Exception as error:", "        except (RuntimeError, DlstepError) as error:"),
    change("a history that one rank lost is no difference", CONDUCTOR, "plan.line if held else f\"no history on line {plan.line}\"", "plan.line"),
    change("a group is left before its graphs are freed", CREW, "        for drop in self._drops:\n            drop()\n        leave_ranks()\n", "        leave_ranks()\n        for drop in self._drops:\n            drop()\n"),
    change("NCCL says goodbye to ranks that were ended", CREW, "        if self._members:\n            break_off()  # NCCL would say goodbye to them\n", ""),
    change("whoever breaks off waits for graphs", RANKS, "        _aborts[0].start()\n", "        _aborts[0].run()\n"),
    change("graphs that are left are waited for", RANKS, "            if abort.is_alive():", "            if False:"),
    change("a rank of torchrun leaves with its graphs", "engine.py", "    engine.driver.drop_graphs()\n    leave_ranks()\n", "    leave_ranks()\n    engine.driver.drop_graphs()\n"),
    change("a start that failed keeps graphs", "engine.py", "            undone.callback(driver.drop_graphs)  # ranks", "            # ranks"),
    change("graphs are freed while they run", "driver/graphs.py", "        with suppress(RuntimeError):  # a device that failed runs none\n            torch.cuda.synchronize(self._target.device)\n        for captured in self._captured.values():\n            captured.graph.reset()  # frames of an error may hold it\n", "        for captured in self._captured.values():\n            captured.graph.reset()  # frames of an error may hold it\n        torch.cuda.synchronize(self._target.device)\n"),
    change("graphs that an error holds stay", "driver/graphs.py", "            captured.graph.reset()  # frames of an error may hold it\n", "            pass\n"),
    change("ranks meet a second time", SYMMETRIC, "has_kernels(device) and not _meetings else", "has_kernels(device) else"),
)  # fmt: skip
