"""llguidance and xgrammar, with the schemas of `benchmarks.schemas`: a script for an environment that has both.

It reads a pickle from its standard input: the bytes of each token id, the id that ends an answer, and for each
schema its text and its instances, as text and whether they are valid. It writes one JSON object: for each engine,
the result for each schema. Each schema gets a process with limited CPU time, because some keep xgrammar busy for hours.
"""

import json
import pickle
import resource
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import process_time
from typing import Any

Accepts = Callable[[bytes], bool]
Tests = Sequence[tuple[bytes, bool]]
SECONDS = 10  # of CPU time for a schema, as in dlstep


def llguidance_of(pieces: Sequence[bytes], end: int) -> Callable[[str], Accepts]:
    """Return a function that compiles a schema to a test of texts."""
    import llguidance  # pyright: ignore[reportMissingImports]

    class Vocabulary:
        eos_token_id, bos_token_id, tokens, special_token_ids = end, None, pieces, (end,)

        def __call__(self, text: str) -> list[int]:
            return [*text.encode()]

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Vocabulary()))

    def compiled(schema: str) -> Accepts:
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(schema))
        if not matcher.is_error():
            matcher.compute_bitmask()
        if matcher.is_error():
            raise ValueError(matcher.get_error())

        def accepts(text: bytes) -> bool:
            matcher.reset()
            return matcher.try_consume_tokens([*text]) == len(text) and matcher.is_accepting()

        return accepts

    return compiled


def xgrammar_of(pieces: Sequence[bytes], end: int) -> Callable[[str], Accepts]:
    """Return a function that compiles a schema to a test of texts."""
    import xgrammar  # pyright: ignore[reportMissingImports]

    info = xgrammar.TokenizerInfo([*pieces], vocab_size=len(pieces), stop_token_ids=[end])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compiled(schema: str) -> Accepts:
        grammar = compiler.compile_json_schema(schema, strict_mode=False)

        def accepts(text: bytes) -> bool:
            matcher = xgrammar.GrammarMatcher(grammar)
            return matcher.accept_string(text) and matcher.accept_token(end)

        return accepts

    return compiled


def measured(compiled: Callable[[str], Accepts], schema: str, tests: Tests) -> dict[str, Any]:
    """Return the result for one schema: why it was refused, or counts of its instances and the CPU time."""
    begun = process_time()
    try:
        accepts = compiled(schema)
    except (ValueError, RuntimeError) as error:
        return {"refused": str(error)[:200]}
    counts = Counter({"seconds": process_time() - begun})
    for text, valid in tests:
        kind = "valid" if valid else "invalid"
        counts.update({kind: 1, f"{kind} accepted": int(accepts(text))})
    return dict(counts)


def limited(compiled: Callable[[str], Accepts], schema: str, tests: Tests) -> dict[str, Any]:
    """Return the result for one schema. A schema that takes more than SECONDS of CPU time counts as refused."""

    def answer(connection: Connection) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        connection.send(measured(compiled, schema, tests))

    forking = get_context("fork")  # the process has the tokenizer already
    receiver, sender = forking.Pipe(duplex=False)
    process = forking.Process(target=answer, args=(sender,))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return {"refused": f"it takes more than {SECONDS} seconds"}
    finally:
        process.join()


if __name__ == "__main__":
    pieces, end, schemas = pickle.load(sys.stdin.buffer)
    engines = {"llguidance": llguidance_of(pieces, end), "xgrammar": xgrammar_of(pieces, end)}
    rows = {name: [limited(engine, *each) for each in schemas] for name, engine in engines.items()}
    print(json.dumps(rows))
