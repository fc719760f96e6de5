"""Mutants of the server, batches, the evaluation and what they show."""

from .mutant import in_file

MUTANTS = (
    *in_file(
        "batch/engine.py",
        ("EngineActor._decode", "wait for a request while others are decoded", "live and self._questions.empty()", "False"),
    ),
    *in_file(
        "batch/ray_pool.py",
        ("RayPool.answers", "repeat no lost request", "if missing", "if False"),
        noticed_by=("unit/batch/test_ray_pool_rounds.py",),
    ),
    *in_file(
        "batch/checkpoint.py",
        ("BatchCheckpoint.note", "store an answer twice", "answer['id'] not in self._known", "True"),
        ("BatchCheckpoint.note", "store an error as the answer", "< TRY_AGAIN", "< 600"),
        noticed_by=("unit/batch/test_checkpoint_runs.py", "unit/cli/test_batch.py"),
    ),
    *in_file(
        "batch/lines.py",
        ("content_key", "let the order of fields change a request's key", ", sort_keys=True", ""),
        ("content_key", "leave the engine out of a request's key", "facts, content", "content"),
        noticed_by=("unit/batch/test_checkpoint_runs.py",),
    ),
    *in_file(
        "evaluate/checkpoint.py",
        ("EvalCheckpoint.order", "leave answers in the order of arrival", "self.rows.pop(item.key)", "self.rows[item.key]"),
        noticed_by=("unit/evaluate/test_runner.py",),
    ),
    *in_file(
        "evaluate/metrics.py",
        ("standard_error", "report the standard error of a single answer", "/ math.sqrt(len(values))", ""),
    ),
    *in_file(
        "evaluate/runner.py",
        ("evaluate", "score answers that failed", "if row['error']", "if False"),
        noticed_by=("unit/evaluate/test_harness.py",),
    ),
    *in_file(
        "engine/likelihood.py",
        ("Likelihoods._exactly", "score the parts of an answer without those before", "prompt + answer[:at]", "prompt"),
    ),
    *in_file(
        "engine/reads.py",
        ("Reading.schedule", "score each token with the row of its own position", "self.labels[:-1], 1", "self.labels[:-1], 0"),
        noticed_by=("unit/engine/test_likelihood.py",),
    ),
    *in_file(
        "engine/overrides.py",
        ("with_changes", "ignore that max_model_len cuts max_tokens", "sized(request, config.max_model_len)", "request"),
        ("_handed_over", "let the new rule remask settled tokens", "block.with_given(progress.settled)", "block"),
        noticed_by=("property/test_forks.py", "unit/engine/test_overrides.py"),
    ),
    *in_file(
        "serve/engine_loop.py",
        ("Steps.at", "fork one step too early", "origin.seq - first", "max(0, origin.seq - first - 1)"),
        ("Steps.drop", "keep recordings that were dropped", "self._kept.pop(request_id, None)", "pass"),
    ),
    *in_file("serve/http/recordings.py", ("_check_step", "fork an answer at its end", "last.finish_info is None", "True")),
    *in_file(
        "serve/http/translate.py",
        (
            "_completion_prompts",
            "tokenize too many prompts before counting them",
            "check_count(facts, len(prompts), body.n or 1)",
            "pass",
        ),
        noticed_by=("unit/serve/router/test_router.py",),
    ),
    *in_file(
        "serve/http/guards.py",
        ("WorkerThread._counted", "queue any number of texts", "tasks >= self._most", "tasks < 0"),
    ),
    *in_file(
        "serve/router/router.py",
        ("Router.on_end", "retry a request whose tokens were already sent", "others and pending.can_restart", "others"),
        (
            "Router._replica_for",
            "send a fork to any replica",
            "keeper if keeper.accepts_requests else None",
            "self.replicas[0]",
        ),
        noticed_by=("unit/serve/router/test_router_replicas.py",),
    ),
    *in_file(
        "serve/router/recording_store.py",
        (
            "RecordingStore._forget",
            "record a queued request that was dropped",
            "pending.submit = pending.submit._replace(keeps=False)",
            "pass",
        ),
        ("RecordingStore.add", "keep recordings of any size", "kept.size, self._positions", "0, self._positions"),
        (
            "RecordingStore.find",
            "find recordings of other API keys",
            "self._requests.get((owner, request_id))",
            "next((held for held in self._requests.values() if held.head.id == request_id), None)",
        ),
        noticed_by=("unit/serve/http/test_recordings.py",),
    ),
    *in_file(
        "serve/router/replica.py",
        ("Replica._overdue", "never kill a silent engine", "worker.silence >= limit", "False"),
        noticed_by=("unit/serve/router/test_replica_faults.py",),
    ),
    *in_file(
        "serve/router/placement.py",
        ("choose", "ignore load when choosing a replica", "candidates if candidate.requests < most", "candidates"),
        ("choose", "prefer the replica with the shortest prefix", "-candidate.", "candidate."),
    ),
    *in_file(
        "serve/router/replica.py",
        ("Replica.abandon", "forget requests that the router abandoned", "self.abandoned.add(pending.id)", "pass"),
        noticed_by=("unit/serve/router/test_replica_faults.py",),
    ),
    *in_file(
        "serve/router/pending_requests.py",
        (
            "PendingRequest.end",
            "end a lost answer without a last frame",
            "self.frames and self.frames[-1].finish_info is None",
            "False",
        ),
    ),
    *in_file(
        "text/_limited_worker.py",
        ("main", "let a job run forever", "limit_time(seconds)", "limit_time(0)"),
    ),
    *in_file(
        "text/dfa.py",
        ("product", "leave out what only the second automaton reads", "False, 1 in after", "False"),
        ("compared", "compare negative numbers as if they were positive", "if limit < 0 else (others", "if False else (others"),
        ("_translated", "read a negated class like any other", "ANY - reading if opening[1:] else reading", "reading"),
        ("_spellings", "write quotes without a backslash", "if quoted else ()", "if False else ()"),
        ("_Regex._repeated", "repeat once too often", "range(most - least)", "range(most - least + 1)"),
        ("Nfa.determined", "end a match before the end of a text", "self._closed(states, '$')", "self._closed(states, '^')"),
        noticed_by=("unit/text/test_json_automaton.py",),
    ),
    *in_file(
        "text/json_schema.py",
        ("_limit", "include limits that are excluded", "name.startswith('exclusive')", "False"),
        ("_one_of", "allow values of several schemas", "other is part", "True"),
        ("_unique", "repeat an item", "not keyword.value or", "True or"),
        ("Schemas._both", "take one shape for all", "if any((self._implies", "if all((self._implies"),
        (
            "_required",
            "leave out a required property",
            "Fact('required', name) for name in names",
            "Fact('required', name) for name in names[1:]",
        ),
        ("_type", "call 1.0 no integer", "dfa.multiples(1)", "dfa.INTEGERS"),
        ("_among", "forbid one spelling of a number alone", "dfa.compared(Decimal(text))[1]", "dfa.words([text])"),
        noticed_by=("unit/text/test_json_automaton.py",),
    ),
    *in_file(
        "text/json_automaton.py",
        ("_Builder._object", "end before required properties", "place[0] >= needed and ", ""),
        ("_Builder._array", "end before the least number of items", "place[0] >= least and ", ""),
        ("_Builder._object", "count equal names twice", "if count < least", "if False"),
    ),
    *in_file(
        "views/frames.py",
        (
            "FrameEncoder.encode",
            "count the offsets of new tokens from their end",
            "frame.settled - len(frame.tokens)",
            "frame.settled",
        ),
    ),
    *in_file(
        "text/chat.py",
        ("render", "let a message vanish from the prompt", "MARK % number not in marked", "False"),
        (
            "template_of",
            "ignore a given chat template",
            "template or (tokenizer and tokenizer.chat_template)",
            "tokenizer and tokenizer.chat_template or template",
        ),
    ),
    *in_file(
        "text/prompts.py",
        ("encode_suffix", "let a suffix go on", " + texts.first.config.spec.eos_ids[:1]", ""),
        noticed_by=("unit/test_llm_infill.py",),
    ),
)
