"""Mutants of the driver, the engine, the models, the ranks and the kernels."""

from .mutant import in_file

MUTANTS = (
    *in_file(
        "driver/pass_ahead.py",
        ("PassAhead.samples_of", "take samples of another KV cache", "plan.cache_digest == EMPTY_CACHE or ", ""),
        ("unmasking_of", "read the answers of other positions", "if columns is None else np.array(columns)", ""),
    ),
    *in_file(
        "distributed/rank_zero.py",
        ("follow_rank_zero", "use a plan from before the last changes", "planned[0] is state", "True"),
        (
            "RankZeroDriver._whole",
            "leave ranks waiting after an unexpected exception",
            "except Exception",
            "except (RuntimeError, DlstepError)",
        ),
    ),
    *in_file(
        "distributed/worker_group.py",
        ("WorkerGroup._lose", "omit the rank that was lost from the error", "str(error)", "'the group ended'"),
        (
            "WorkerGroup.end",
            "leave the group before its graphs are freed",
            "self.before_leaving()",
            "leave_ranks()\n    self.before_leaving()",
        ),
        ("WorkerGroup._fault", "never give up a silent rank", "silent_for(timeout)", "silent_for(1000000000.0)"),
        noticed_by=("unit/distributed/test_rank_zero.py", "unit/distributed/test_ranks.py"),
    ),
    *in_file(
        "distributed/rank_zero.py",
        ("delayed_interrupt", "lose a delayed interrupt", "signal.raise_signal(signal.SIGINT)", "pass"),
    ),
    *in_file(
        "distributed/ranks.py",
        ("leave_ranks", "wait for graphs that never end", "abort.is_alive()", "False"),
    ),
    *in_file(
        "distributed/ranks.py",
        ("_create", "use shared memory although a rank has none", "and all(every) else", "else"),
    ),
    *in_file(
        "distributed/control_channel.py",
        (
            "ControlChannel._compare",
            "leave a rank's own digest out of the comparison",
            "[value, *self._values()]",
            "[*self._values()]",
        ),
        ("ControlChannel._compare", "accept different digests on the ranks", "len(set(values)) > 1", "not values"),
        noticed_by=("unit/distributed/test_rank_zero.py",),
    ),
    *in_file(
        "dlstep_kernels/draws.py",
        ("philox", "use the same key in every round", "key = key + PHILOX_INCREMENT", "pass"),
        ("uniform", "start noise for an odd id one id too early", "first & 1:", "0:"),
    ),
    *in_file(
        "dlstep_kernels/gpu/draws.py",
        ("complement", "exchange the numbers of neighbouring ids", "two, one)", "one, two)"),
        (
            "complements",
            "exchange numbers of a tile",
            "tl.join(one, three), tl.join(two, four)",
            "tl.join(one, two), tl.join(three, four)",
        ),
    ),
    *in_file(
        "dlstep_kernels/gpu/experts.py",
        ("_gate_tile", "scale the up projection like the gate", "at + width", "at"),
        (
            "_lower_tile",
            "leave the rows of the second product unscaled",
            "own * tl.load(weight_scales",
            "tl.load(weight_scales",
        ),
    ),
    *in_file(
        "dlstep_kernels/gpu/quantization.py",
        ("_quantize_rows", "a broken row looks whole", "float('nan')", "1.0"),
    ),
    *in_file(
        "dlstep_kernels/gpu/attention.py",
        ("_pages", "look up only two pages of a tile", "start = first + number * PAGE_SIZE", "start = first + PAGE_SIZE"),
        (
            "_attend",
            "look up pages from the middle of one on",
            "begin = begin // min(BLOCK_N, PAGE_SIZE) * min(BLOCK_N, PAGE_SIZE)",
            "begin = begin",
        ),
        ("_attend", "read the first share of the values only", "share * (BLOCK_D // SHARES) + ", ""),
        ("kinds_of", "run long contexts as short ones", "shape.longest <= SHORT", "True"),
    ),
    *in_file(
        "dlstep_kernels/gpu/head.py",
        (
            "_masked",
            "read the token mask of a tile from whole words only",
            " | high << 1 << 31 - (start_id & 31)",
            "",
        ),
        (
            "_read_head",
            "read every rank's token masks from the first id on",
            "row, inside, start_id, ROWS",
            "row, inside, start, ROWS",
        ),
    ),
    *in_file(
        "dlstep_kernels/gpu/named.py",
        (
            "_measure_named",
            "report a probability of a scored id that the token mask forbids",
            "there &= permitted(",
            "permitted(",
        ),
    ),
    *in_file(
        "dlstep_kernels/gpu/parts.py",
        ("permitted", "shift token masks by one id", "ids & 31", "ids + 1 & 31"),
        ("permitted", "forbid the ids of the last, partial word of a token mask", "place < words", "place + 1 < words"),
        (
            "line_of",
            "read the token mask at a row's own number",
            "tl.load(mask_rows + rows, mask=inside, other=0)",
            "rows",
        ),
        (
            "side_by_side",
            "merge the first rank's keys twice",
            "exchange(parts.keys)",
            "[exchange(parts.keys)[0]] * len(exchange(parts.keys))",
        ),
        noticed_by=("unit/dlstep_kernels/gpu/test_head.py",),
    ),
    *in_file(
        "dlstep_kernels/gpu/sampling.py",
        (
            "_scan_tiles",
            "list an id next to the best one that the token mask forbids",
            "x = only(x, permitted(line, words, group))",
            "pass",
        ),
    ),
    *in_file(
        "dlstep_kernels/quantization.py",
        ("scaled_linear", "forget the scales of rows", "product * row_scales[:, None] * scales", "product * scales"),
    ),
    *in_file(
        "dlstep_kernels/sampling.py",
        ("_filtered", "drop an id at the edge of min_p", "< settings", "<= settings"),
        (
            "_scored",
            "leave named probabilities unnormalized",
            "(1, ids.clamp(0, last)) / total[:, None]",
            "(1, ids.clamp(0, last))",
        ),
        ("_truncated", "drop an id at the edge of top_p", "before > top_p", "before >= top_p"),
    ),
    *in_file(
        "dlstep_kernels/vocabulary.py",
        ("cut_of", "start a rank's ids at an odd one", "2 * -(-total // (2 * size))", "-(-total // size)"),
    ),
    *in_file(
        "driver/buckets.py",
        ("sized", "reserve too few rows for many short spans", "max(rows, spans * least)", "rows"),
    ),
    *in_file(
        "driver/graphs.py",
        (
            "PaddedExecutor._usable_graph",
            "replay graphs that read a table of token masks that was replaced",
            "self._drop([each for each in self._captured if each.kind.masked])",
            "pass",
        ),
    ),
    *in_file(
        "driver/torch_driver.py",
        (
            "KVCaches.place",
            "run an unknown cache digest on any cache",
            "not self.holds(plan, owner)",
            "False",
        ),
        ("KVCaches.place", "lose the content of a cache that grows", "cache.copy(smaller)", "pass"),
    ),
    *in_file(
        "driver/torch_driver.py",
        (
            "TorchDriver.lent",
            "change the page tables of a cache whose memory is lent",
            "replace(cache, tables=deepcopy(cache.tables))",
            "cache",
        ),
        ("TorchDriver._replayed", "run only the last of the earlier plans", "in plans", "in plans[-1:]"),
        noticed_by=("unit/engine/test_observation.py",),
    ),
    *in_file(
        "models/networks.py",
        (
            "Memory.restoring",
            "leave what an observed pass wrote in the pages",
            "tensor[indices] = content",
            "pass",
        ),
        noticed_by=("unit/engine/test_observation.py",),
    ),
    *in_file(
        "engine/observation.py",
        (
            "_Pass._keep_attention",
            "show attention of the first heads instead of the chosen",
            "queries[rows, heads]",
            "queries[rows, :len(heads)]",
        ),
        (
            "_Pass._logits",
            "leave out the final norm at earlier layers",
            "self.norm(self.hidden[number][self.batch.sampled_rows])",
            "self.hidden[number][self.batch.sampled_rows]",
        ),
        (
            "_rebuilt",
            "observe a pass that samples only some requests",
            "max_num_batched_tokens=rows",
            "max_num_batched_tokens=config.max_num_batched_tokens",
        ),
    ),
    *in_file(
        "driver/lowering.py",
        ("gather", "ignore a span's own shift", "span.wanted.row_shift(target.head_shift)", "target.head_shift"),
        ("_reordered", "place rows in any order at positions in order", "= rows.positions", "= positions[first]"),
        ("_predecessors", "apply a penalty across groups", "!= span.rows.grid.start(position) else", "else"),
        (
            "_settings",
            "ignore a setting that not all requests of a batch have",
            "values.count(neutral) < len(values)",
            "neutral not in values",
        ),
        (
            "gather",
            "reuse rows of other spans of equal shape",
            "before.facts == facts",
            "len(before.facts) == len(facts)",
        ),
        noticed_by=("unit/driver/test_graphs.py", "reference/test_causal_loops.py"),
    ),
    *in_file(
        "driver/tables.py",
        (
            "MaskTable._hold",
            "evict a token mask of the current forward pass",
            "(row := self._row_of.pop(mask_id, None)) is not None",
            "(row := None) is not None",
        ),
        (
            "MaskTable._hold",
            "keep a table with too few rows for the token masks of a forward pass",
            "len(masks) >= len(self.words)",
            "not len(self.words)",
        ),
        ("_MaskBits.words", "forget which ids were allowed last", "self._last[kind] = (classes, words)", "pass"),
    ),
    *in_file(
        "driver/memory.py",
        (
            "room_on_device",
            "reserve memory for pages that forward passes need",
            "free, _ = torch.cuda.mem_get_info(device)",
            "pass",
        ),
        ("room_left", "leave no room for a session", "max(longest - spare, 0)", "0"),
    ),
    *in_file(
        "models/checkpoint.py",
        (
            "default_dtype",
            "keep 16 bits that the processor is slow with",
            "any(map(torch.cpu.get_capabilities().get, instructions))",
            "instructions",
        ),
        noticed_by=("unit/models/test_checkpoint.py",),
    ),
    *in_file(
        "driver/warmup.py",
        ("buckets_for", "capture no graphs for batches with prompts", "idle, replace(kind, widest=TILE_HEIGHT): idle", "idle"),
    ),
    *in_file(
        "driver/torch_driver.py",
        ("KVCache.copy", "share page tables between copied caches", "deepcopy(other.tables)", "other.tables"),
        noticed_by=("unit/driver/test_tables.py",),
    ),
    *in_file(
        "driver/torch_driver.py",
        (
            "TorchDriver.apply_ownership",
            "keep the memory of the cache that ran last",
            "self._current = self._caches.main",
            "pass",
        ),
        (
            "TorchDriver.gather",
            "reuse rows although their pages have new owners",
            "None if reassigned else cache.placed",
            "cache.placed",
        ),
        (
            "TorchDriver._settle",
            "overwrite the samples of a pass that nobody waited for yet",
            "self._started.settle()",
            "pass",
        ),
        ("StartedPlan.wait", "leave a cache at its earlier digest", "= samples.cache_digest", "= self._cache.digest"),
        ("TorchDriver.submit", "run only the last forward pass of a plan", "in forwards:", "in forwards[-1:]:"),
        noticed_by=(
            "unit/driver/test_torch_driver_kv_cache.py",
            "unit/driver/test_graphs.py",
            "unit/distributed/test_control_channel.py",
        ),
    ),
    *in_file(
        "engine/buffer_policy.py",
        ("BufferPolicy.applied", "override options of a request by the policy", "request.params.strategy_options or ", ""),
    ),
    *in_file(
        "engine/decode.py",
        (
            "Decode._catch_up",
            "catch up with a lost device by a single forward pass",
            "running and (not self._state.done)",
            "False",
        ),
        ("Decode.step", "leave the decode leader behind a failed forward pass", "self._leader.rewind(self._state)", "pass"),
        (
            "Decode.step",
            "hide an interrupted event from the leader",
            "(self._forward_failed or self._leader_state is not self._state)",
            "self._forward_failed",
        ),
        noticed_by=("unit/testing/test_sharing.py",),
    ),
    *in_file(
        "engine/decode.py",
        ("Decode.__init__", "give all decodes one KV cache", "next(_owners)", "0"),
        noticed_by=("property/test_laws.py",),
    ),
    *in_file(
        "engine/devices.py",
        ("check_room", "reserve more pages than memory holds", "size > room", "False"),
        noticed_by=("unit/cli/test_main_process.py",),
    ),
    *in_file(
        "engine/json_lines.py",
        ("opened", "keep an incomplete last line", "truncate(len(complete[0]) + len(complete[1]))", "seek(0)"),
        (
            "sealed_lines",
            "accept a line that was edited",
            "line != sealed(content)",
            "line.get(CHECKSUM) is None",
        ),
        noticed_by=("unit/batch/test_checkpoint.py", "unit/evaluate/test_runner.py"),
    ),
    *in_file(
        "engine/loader.py",
        ("_load", "keep weights and pages after a failed start", "undone.push(_free_memory)", "pass"),
        noticed_by=("unit/test_llm_memory.py",),
    ),
    *in_file(
        "engine/json_lines.py",
        ("RunLock.check", "write to a folder that was replaced", "if not same", "if False"),
    ),
    *in_file(
        "engine/decode.py",
        ("SharedDecode._restart", "keep the state of a pass that failed", "self.decode.rewind(self._first)", "pass"),
        (
            "SharedDecode._settle",
            "leave queued requests out of the load",
            "(self.decode.state.live) + len(self._entering)",
            "(self.decode.state.live)",
        ),
        ("SharedDecode._settle", "decode streams that no caller holds", "subscription is None or", ""),
        (
            "Turn.run",
            "let a thread run pass after pass while others wait",
            "with earlier, self._running:",
            "with self._running:",
        ),
        noticed_by=("unit/engine/test_decode.py", "unit/engine/test_buffer_policy.py", "unit/test_llm_faults.py"),
    ),
    *in_file(
        "models/quantization.py",
        (
            "set_quantized",
            "quantize a tied weight under one name only",
            "for module, name in owners:",
            "for module, name in owners[:1]:",
        ),
        (
            "quantize_weight",
            "one scale for a whole weight",
            "weight.flatten(0, -2)",
            "weight.flatten()[None].repeat(len(weight.flatten(0, -2)), 1)",
        ),
    ),
    *in_file(
        "models/quantization.py",
        (
            "restored",
            "scales of blocks in the other direction",
            "wide.repeat_interleave(BLOCK, 0)",
            "wide.T.repeat_interleave(BLOCK, 0)",
        ),
    ),
    *in_file(
        "models/compiled.py",
        (
            "compile_layers",
            "keep a compiled layer alive through itself",
            "__class__ = _compiled(type(layer), backend)",
            "forward = _compiled(type(layer), backend).forward.__get__(layer)",
        ),
        noticed_by=("unit/test_llm_memory.py",),
    ),
    *in_file(
        "models/reading.py",
        ("check_size", "read JSON files of any size", "(size := path.stat().st_size) > LARGEST_JSON", "(size := 0) > 0"),
        noticed_by=("unit/models/test_check_agrees_with_loading.py",),
    ),
    *in_file(
        "models/sharding.py",
        (
            "_own_experts",
            "let every rank use the experts of rank 0",
            "chosen - ranks.rank * count",
            "chosen",
        ),
    ),
    *in_file(
        "processes/child.py",
        (
            "run",
            "lose the reason why a worker cannot import",
            "try:\n        target, arguments = pickle.loads(packed)",
            "target, arguments = pickle.loads(packed)\n    try:",
        ),
    ),
)
