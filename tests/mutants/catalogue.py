"""One-line changes to the core and the strategies, each of which some law or recorded trace must notice.

A mutant is a file under `src/dlstep`, and pairs of old and new text; every old text occurs once. `defect` names the defect
of an earlier engine that the mutant brings back, where it does.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change, and what is wrong with it."""

    why: str
    file: str
    edits: tuple[tuple[str, str], ...]
    defect: str = ""


def change(why: str, file: str, old: str, new: str, defect: str = "") -> Mutant:
    """A mutant of one edit."""
    return Mutant(why, file, ((old, new),), defect)


COMMIT, SCHEDULE, FINISH = "core/commit.py", "core/schedule.py", "core/finish.py"
LIFECYCLE, CACHE, BLOCKS = "core/lifecycle.py", "core/cache.py", "strategies/_blocks.py"

MUTANTS = (
    change(
        "the answer's length counts positions that hold no token yet",
        FINISH,
        '    if settled == goal.limit:\n        return ended(sequence, "length", settled)',
        "    if sequence.window and sequence.window[-1].end >= goal.limit:\n"
        '        return ended(sequence, "length", goal.limit)',
        "L-1",
    ),
    change(
        "the first listed stop id ends the answer, not the first in the text",
        FINISH,
        "new, stopped = new[: new.index(stop_id)], True",
        "new, stopped = new[: new.index(stop_id)], True\n                break",
    ),
    change(
        "a full answer overwrites an end of sequence",
        FINISH,
        "        if stopped:\n",
        "        if stopped and settled < sequence.limit:\n",
        "L-3",
    ),
    change(
        "a block is opened behind the answer's end",
        BLOCKS,
        "        if start >= goal.limit:",
        "        if start >= goal.limit + self.block_size:",
        "L-5",
    ),
    change(
        "a mask in a prompt is let in",
        LIFECYCLE,
        "if spec.mask_id is not None and spec.mask_id in request.prompt:",
        "if not request.prompt:",
        "L-8",
    ),
    change(
        "a storing forward counts as storing everything final",
        COMMIT,
        "stored = before.final if span.wanted else span.stop",
        "stored = before.final",
        "K-1",
    ),
    Mutant(
        "a prefix hit counts the window as stored",
        SCHEDULE,
        (
            (
                "opened = sequence.holding(Storage(len(shared) * config.page_size))",
                "opened = sequence.holding(Storage(sequence.settled if shared else 0))",
            ),
        ),
        "K-2",
    ),
    change(
        "rows of the window count as stored for good",
        COMMIT,
        "stored = before.final if span.wanted else span.stop",
        "stored = span.stop",
        "K-3",
    ),
    Mutant(
        "a page is published before its keys and values exist",
        COMMIT,
        (
            ("page, stored = held.published, held.stored", "page, stored = held.published, sequence.final"),
            (
                "return cache, held.publishing(page + len(keys), keys[-1])",
                "return cache, held.reaching(held.stored).publishing(page + len(keys), keys[-1])",
            ),
            (
                "cache.publish(zip(pages, keys, strict=False))",
                "cache.publish(list(zip(pages, keys, strict=False)))",
            ),
        ),
        "K-4",
    ),
    change(
        "lack of pages is an exception",
        SCHEDULE,
        "            if missing > draft.cache.available:\n                return False",
        '            if missing > draft.cache.available:\n                raise RuntimeError("nothing can be scheduled")',
        "Q-1",
    ),
    change(
        "a request that can never run is let in",
        LIFECYCLE,
        "    if rows > config.max_num_batched_tokens:\n        return f",
        "    if rows < 0:\n        return f",
        "Q-1",
    ),
    change(
        "a window is fed whatever the budget says",
        SCHEDULE,
        "return window if rows <= budget else None",
        "return window",
        "Q-2",
    ),
    change(
        "a shift head has no row for the first position behind a stored prompt",
        SCHEDULE,
        "if shift and start and window.wanted and window.wanted[0] == start:",
        "if not start and window.wanted:",
        "S-3",
    ),
    change(
        "what is stored alone is stored under another grid",
        SCHEDULE,
        "return storing_span(sequence.goal.request, stored, sequence.tokens(stored, stop), grid)",
        "return storing_span(sequence.goal.request, stored, sequence.tokens(stored, stop), type(grid)(0, grid.size))",
        "V-2",
    ),
    change(
        "a preempted sequence still counts as stored",
        COMMIT,
        "sequence.goal.strategy, sequence.holding(NOTHING_STORED)",
        "sequence.goal.strategy, sequence",
    ),
    change(
        "a preempted sequence keeps its pages",
        COMMIT,
        "cache = cache.release(victim.pages, victim.ledger.storage.slot)",
        "cache = cache.release((), victim.ledger.storage.slot)",
    ),
    change("a preempted sequence is lost", COMMIT, "for victim in victims])", "for victim in victims[:0]])"),
    change(
        "a finished sequence keeps its pages",
        COMMIT,
        "cache = cache.release(before.pages, before.ledger.storage.slot)",
        "cache = cache.release((), before.ledger.storage.slot)",
    ),
    change(
        "a preempted sequence keeps its carry slot",
        COMMIT,
        "cache = cache.release(victim.pages, victim.ledger.storage.slot)",
        "cache = cache.release(victim.pages)",
    ),
    change(
        "a finished sequence keeps its carry slot",
        COMMIT,
        "cache = cache.release(before.pages, before.ledger.storage.slot)",
        "cache = cache.release(before.pages)",
    ),
    change(
        "two sequences are given one carry slot",
        SCHEDULE,
        "draft.cache = draft.cache.share(shared, slot)",
        "draft.cache = draft.cache.share(shared)",
    ),
    change(
        "pages are made for what is fed, not for what is seen",
        SCHEDULE,
        "missing = -(-window.end // page_size) - len(sequence.ledger.storage.table)",
        "missing = -(-window.start // page_size) - len(sequence.ledger.storage.table)",
    ),
    change("one page is granted twice in a plan", SCHEDULE, "        self.cache = self.cache.take(pages)\n", ""),
    change(
        "answers go to the wrong requests",
        COMMIT,
        "zip(plan.spans, samples.rows, strict=True)",
        "zip(plan.spans, samples.rows[::-1], strict=True)",
    ),
    change(
        "the page count is rounded down",
        SCHEDULE,
        "missing = -(-window.end // page_size) - len(sequence.ledger.storage.table)",
        "missing = window.end // page_size - len(sequence.ledger.storage.table)",
    ),
    change(
        "new pages enter the table in the wrong order",
        COMMIT,
        "        for page in grant.pages:\n",
        "        for page in grant.pages[::-1]:\n",
    ),
    change(
        "pages of an aborted grant keep the prefix they lost",
        COMMIT,
        "        cache = cache.take(grant.pages)\n        place = places.get(grant.arrival)\n        if place is None:",
        "        place = places.get(grant.arrival)\n        if place is not None:\n            cache = cache.take(grant.pages)\n        else:\n            continue",
    ),
    change(
        "an evicted page can still be found",
        CACHE,
        "                index, keys = index.remove(keys[page]), keys.remove(page)\n            owners",
        "                keys = keys.remove(page)\n            owners",
    ),
    change("a shared page is freed by its first owner", CACHE, "            if count > 1:\n", "            if count > 2:\n"),
    change("a prefix key forgets what came before", CACHE, "blake2b(key + array", "blake2b(array"),
    change(
        "a prefix key forgets the grid",
        CACHE,
        'key = grid.origin.to_bytes(8, "little") + grid.size.to_bytes(8, "little") + key',
        'key = b"grid" + key',
    ),
    change(
        "a prefix key forgets the salt",
        CACHE,
        'key = grid.origin.to_bytes(8, "little") + grid.size.to_bytes(8, "little") + key',
        'key = grid.origin.to_bytes(8, "little") + grid.size.to_bytes(8, "little")',
    ),
    change(
        "a prefix key ends with its page, not with the group",
        CACHE,
        "while (end := grid.end((page + 1) * page_size - 1)) <= stop:",
        "while (end := (page + 1) * page_size) <= stop:",
    ),
    change(
        "the oldest is preempted first",
        SCHEDULE,
        "draft.preemptions.append(running[count].goal.request.arrival)\n"
        "                draft.cache = draft.cache.release(running[count].pages,",
        "draft.preemptions.append(running[0].goal.request.arrival)\n"
        "                draft.cache = draft.cache.release(running[0].pages,",
    ),
    change(
        "a younger sequence overtakes one without rows",
        SCHEDULE,
        "        if span is None:\n            return False\n",
        "        if span is None:\n            index += 1\n            continue\n",
    ),
    change(
        "somebody is admitted while somebody is preempted",
        SCHEDULE,
        "if _continue_running(state, draft) and state.waiting and not draft.preemptions:",
        "if _continue_running(state, draft) and state.waiting:",
    ),
    change(
        "final rows are cut inside a group",
        SCHEDULE,
        "stop = final if reach >= final else grid.start(reach)",
        "stop = min(final, reach)",
    ),
    change(
        "an aborted request keeps its pages",
        LIFECYCLE,
        "cache=state.cache.release(sequence.pages, sequence.storage.slot),",
        "cache=state.cache,",
    ),
    change(
        "a rebuilt state relies on the old device",
        LIFECYCLE,
        "waiting=state.waiting.push_front(running), line=START_LINE, releases=()",
        "waiting=state.waiting.push_front(running), releases=()",
    ),
    change(
        "a rebuilt state still finds old pages",
        LIFECYCLE,
        "    cache = _empty_cache(state.config, state.strategy)",
        "    cache = state.cache",
    ),
    change(
        "forwards are not counted",
        "core/sequence.py",
        "ledger.steps + steps, ledger.nfe + 1,",
        "ledger.steps + steps, ledger.nfe,",
    ),
    change(
        "the limit on sampling forwards counts storing ones",
        FINISH,
        "sequence.ledger.steps >= params.max_nfe",
        "sequence.ledger.nfe >= params.max_nfe",
    ),
    change(
        "the end of sequence is emitted",
        FINISH,
        "new, stopped = new[: new.index(stop_id)], True",
        "new, stopped = new[: new.index(stop_id) + 1], True",
    ),
    change(
        "a run of equal tokens is counted anew in each step",
        FINISH,
        "run += sequence.ledger.watch.run",
        "run += 0",
    ),
    change("a stop string across two steps is missed", FINISH, "tail = text[max(0, len(text) - keep) :]", 'tail = b""'),
    change(
        "an answer ends although positions before its end are undecided",
        BLOCKS,
        "return block.first if self.rule.revokes else undecided[0]",
        "return block.first if self.rule.revokes else block.undecided[-1]",
    ),
    change(
        "a block is sealed although one before it is not",
        BLOCKS,
        "            if stands < block.end:  # this block may change, and so all later ones\n                break\n",
        "            if stands < block.end:\n                continue\n",
    ),
    change(
        "a token lands one position off",
        "core/block.py",
        "offset = undecided.pop(row - begin) - start",
        "offset = min(undecided.pop(row - begin) - start + 1, len(new_tokens) - 1)",
    ),
    change(
        "a forward may decide nothing",
        BLOCKS,
        "must, shipped, simple = True, rule.shipped,",
        "must, shipped, simple = False, rule.shipped,",
    ),
    change(
        "a forward may accept no row", BLOCKS, "(before is None or before.progress", "(before is not None and before.progress"
    ),
    change(
        "the block before is looked at after its rows were accepted",
        BLOCKS,
        "begin, first, before = end, stop, block",
        "begin, first, before = end, stop, after",
    ),
    change("failed rows are looked for in no forward", "core/plan.py", "any_zero or 0 in highest", "any_zero"),
    change(
        "the rows that a rule takes may be any",
        "core/contract.py",
        "not ascending(chosen) or (chosen and not begin <= chosen[0] <= chosen[-1] <= last)",
        "False",
    ),
    change("a rule may take nothing although it must", "core/contract.py", "if must and not chosen:", "if False:"),
    change(
        "a strategy may go round in a circle",
        "core/contract.py",
        'hook == "commit" and after.ledger.steps > limit',
        "False and after.ledger.steps > limit",
    ),
    change(
        "a plan that never fits is planned for ever", "core/schedule.py", "if not draft.spans and not state.done:", "if False:"
    ),
    change(
        "a shifted head feeds a row more than the budget",
        SCHEDULE,
        "if rows < budget",
        "if rows <= budget",
    ),
    change(
        "lines do not say of how many pages they are", "core/plan.py", "plan.step, plan.num_pages, *parts", "plan.step, *parts"
    ),
    change("lines do not say in which mode a span is", "core/plan.py", "_MODES[self.mode], ", ""),
    change("lines do not say what a network carries", "core/plan.py", "_CARRIES[self.carry], ", ""),
    change("lines do not say what is blended", "core/plan.py", "self.soft.mark()", "0"),
    change("lines do not say where blends are", "core/soft.py", "hash((where, ", "hash(("),
    change("lines do not say how blends are made", "core/soft.py", "merge.renormalize, merge.weight", "merge.weight"),
    change(
        "SystemExit of a hook that judges a request ends everything",
        LIFECYCLE,
        "    except BaseException as error:  # noqa: BLE001 - a hook of user code\n        reraise_interrupt(error)\n",
        "    except Exception as error:  # noqa: BLE001 - a hook of user code\n",
    ),
    change(
        "what a class raises for its values ends everything",
        "core/options.py",
        "    except BaseException as error:\n        raise ValueError(f",
        "    except ValueError as error:\n        raise ValueError(f",
    ),
    change(
        "a replay calls what did not return",
        LIFECYCLE,
        "        if isinstance(error, UserCodeTimeout):\n            raise fault from error\n",
        "",
    ),
    change(
        "a fault of a request that adopts is looked for in the others",
        LIFECYCLE,
        "        if isinstance(fault.__cause__, UserCodeTimeout):\n            raise\n"
        '        return _filed(state, ended(sequence.asking(request), "error", sequence.settled, str(fault)))\n',
        "        raise\n",
    ),
    change(
        "SystemExit of a rule ends everything",
        "core/commit.py",
        "except BaseException as error:\n        raise fault_of(sequence, state.step, error) from error\n    return judge",
        "except Exception as error:\n        raise fault_of(sequence, state.step, error) from error\n    return judge",
    ),
    change(
        "draws are numbered by the request",
        BLOCKS,
        "draws += (number,) * len(asked)",
        "draws += (steps,) * len(asked)",
    ),
    change(
        "draws do not advance",
        "core/block.py",
        "return _block(start, tuple(new_tokens), tuple(undecided), tuple(new_probabilities), self.given, self.opened,",
        "return _block(start, tuple(new_tokens), tuple(undecided), tuple(new_probabilities), self.given, self.opened + 1,",
    ),
    change(
        "the block before is looked at after it was written",
        BLOCKS,
        "must = block.progress >= self.semi_complete_threshold",
        "must = blocks[-1].progress >= self.semi_complete_threshold",
    ),
    change(
        "the next block opens whatever the last one holds",
        BLOCKS,
        "return block.progress >= self.add_block_threshold and",
        "return block.progress >= 0.0 and",
    ),
    change(
        "the stability threshold is ignored",
        BLOCKS,
        "self.stable_share(block, limit) >= stability",
        "self.stable_share(block, limit) >= 0.0",
    ),
    change(
        "a request's options are ignored",
        LIFECYCLE,
        "            strategy = with_options(strategy, options)\n",
        "            with_options(strategy, options)\n",
    ),
    change(
        "without folding, a sealed block frees its place at once",
        BLOCKS,
        "            if self.fold_commits:\n                past, window",
        "            if True:\n                past, window",
    ),
    change(
        "blocks open behind an end of sequence",
        BLOCKS,
        "for block in window for stop_id in goal.stop_ids):",
        "for block in window[:0] for stop_id in goal.stop_ids):",
    ),
    change("a replay compares nothing", "core/trace.py", "if all(schedule(earlier) != event.plan", "if all(event.plan is None"),
)
