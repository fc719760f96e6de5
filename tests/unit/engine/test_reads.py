"""Reads: the softmax over the labels of one plain forward pass, whatever else is in the batch."""

from dataclasses import replace
from random import Random

import pytest
import torch
from transformers import Qwen3ForCausalLM

from dlstep import LLM, tiny
from dlstep.engine.reads import ReadResult, Reads, read_all, read_request
from dlstep.text.read_templates import ReadTemplate

from ...helpers.refusals import refused
from ...helpers.serving import tiny_llm
from ...reference.models import Dense

CLOSE, LONGEST = 2e-5, 512


def drawn(random, ids, most):
    """A random prompt and template of up to `most` tokens each."""
    length = random.randint(1, most)
    slots = tuple(sorted(random.sample(range(length), random.randint(1, min(3, length)))))
    labels = tuple([tuple(random.sample(ids, random.randint(2, 5))) for _ in slots])
    prompt, tokens = (tuple(random.choices(ids, k=size)) for size in (random.randint(1, most), length))
    return prompt, ReadTemplate(tokens, slots, labels, ())


def expected(llm, dense, request, template):
    """The softmax over the labels of one forward pass of the network, with masks in the slots and after the template."""
    strategy, mask = llm.engine.first.strategy, llm.engine.first.config.spec.mask_id
    fixed = dict(template.pinned)
    tokens = [*request.prompt, *[fixed.get(offset, mask) for offset in range(len(template.tokens))]]
    tokens += [mask] * (strategy.fed_end(request) - len(tokens))
    logits = dense.predict(tokens, strategy.grid(request).group).double()
    rows = [logits[len(request.prompt) + slot] for slot in template.slots]
    return [row[list(ids)].softmax(0).tolist() for row, ids in zip(rows, template.label_ids, strict=True)]


def check(llm, dense, ids):
    """Random reads equal the network's, alone, together, and once more from the cache."""
    random, reads = Random(7), Reads(llm.engine)
    drawings = [drawn(random, ids, 19) for _ in range(24)]
    requests = [read_request(number, *drawing, LONGEST) for number, drawing in enumerate(drawings)]
    together, again = read_all(reads, requests), read_all(reads, requests[::-1])[::-1]
    alone = [read_all(reads, [request])[0] for request in requests[:4]]
    for number, (request, (_, template)) in enumerate(zip(requests, drawings, strict=True)):
        for found in (together[number], again[number], *alone[number : number + 1]):
            assert not found.error
            for slot, probabilities in zip(found.slots, expected(llm, dense, request, template), strict=True):
                assert slot == pytest.approx(probabilities, abs=CLOSE) and sum(slot) == pytest.approx(1.0)
    reads.close()


@pytest.mark.parametrize("name", ["tiny-bd", "tiny-edit", "tiny-d2f", "tiny-fdv2", "tiny-llada"])
def test_reads_of_embedded_models_equal_a_plain_forward(name):
    network = Qwen3ForCausalLM.from_pretrained(tiny.path(name), dtype=torch.float32, attn_implementation="sdpa").eval()
    llm = LLM(name, page_size=4, max_num_reqs=8)
    spec = llm.engine.first.config.spec
    check(llm, Dense(network, spec.head_shift), range(3, spec.vocab_size))


def test_equal_prompts_share_their_pages_and_take_one_pass():
    fed = []

    class Watched:
        def run(self, plan):
            fed.append(plan)
            return engine.driver.run(plan)

    engine = tiny_llm().engine
    reads = Reads(replace(engine, driver=Watched()))
    template = ReadTemplate((5, 6, 7, 8), (1, 3), ((9, 10), (9, 10, 11)), ())
    prompt = tuple(range(10, 80))
    (first,) = read_all(reads, [read_request(0, prompt, template, LONGEST)])
    (second,) = read_all(reads, [read_request(1, prompt, template, LONGEST)])
    page = engine.first.config.page_size
    assert [len(plan.spans[0].rows.tokens) for plan in fed] == [80, 80 - second.cached]
    assert first.cached == 0 and second.cached == 70 // page * page
    for one, two in zip(first.slots, second.slots, strict=True):
        assert one == pytest.approx(two, abs=CLOSE)
    (salted,) = read_all(reads, [replace(read_request(2, prompt, template, LONGEST), salt=b"another")])
    assert salted.cached == 0


def test_a_read_that_cannot_run_says_why():
    reads = Reads(tiny_llm().engine)
    template = ReadTemplate((5, 6), (1,), ((9, 10),), ())
    with refused("prompt", "context_length_exceeded"):
        read_request(0, (5,) * 511, template, LONGEST)
    long, right = read_all(reads, [read_request(0, (5,) * 600, template, 999), read_request(1, (5,), template, LONGEST)])
    assert "max_model_len=512" in long.error and right.slots
    (last,) = read_all(reads, [read_request(0, (5,) * 510, template, LONGEST)])
    assert len(last.slots) == 1
    reads.add(read_request(2, (5,), template, LONGEST))
    reads.add(read_request(3, (5,), template, LONGEST))
    reads.abort(2)
    reads.fail("it failed")
    assert reads.step() == {2: ReadResult((), "the read was aborted", aborted=True), 3: ReadResult((), "it failed")}
    assert not reads.live
    with refused("decoding_strategy", "unsupported"):
        Reads(LLM("tiny-canvas").engine)
