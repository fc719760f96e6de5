"""Train an embedded model by policy gradient to answer correctly at a low acceptance threshold: `python examples/rl.py`.

Each update samples groups of answers. The loss of a token is minus its answer's advantage times the token's log-probability in
the forward pass that unmasked it, which the step map records. A run takes a minute or two on two cores.
"""

import argparse
import re
from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from dlstep import LLM, Output, SamplingParams, examples, tiny

Problems = Sequence[tiny.Problem]
MODEL, THRESHOLD, MAX_TOKENS = "tiny-llada", 0.3, 48
PROMPTS, SAMPLES, RATE = 16, 4, 3e-4  # of each update


def reward(problem: tiny.Problem, output: Output) -> float:
    """Return 1 if the last number of the answer is right, else 0."""
    return float(re.findall(r"\d+", output.text)[-1:] == [str(problem.answer)])


def accuracy(llm: LLM, problems: Problems) -> tuple[float, float]:
    """Return the share of right greedy answers, and its standard error."""
    outputs = llm.generate([problem.prompt for problem in problems], SamplingParams(max_tokens=MAX_TOKENS), progress=False)
    share = sum(map(reward, problems, outputs)) / len(problems)
    return share, sqrt(share * (1 - share) / len(problems))


def loss_of(model: PreTrainedModel, outputs: Sequence[Output], advantages: Tensor) -> Tensor:
    """Return the loss of a group of answers to one prompt: minus advantage times log-probability, summed over tokens."""
    rows, places, targets, weights = list[tuple[int, ...]](), list[tuple[int, int]](), list[int](), list[Tensor]()
    for output, advantage in zip(outputs, advantages, strict=True):
        for example in examples(output):
            places += [(len(rows), position) for position in example.positions]
            targets += example.targets
            weights += [advantage] * len(example.targets)
            rows.append(example.input_ids)
    seen = torch.ones(len(rows), 1, len(rows[0]), len(rows[0]), dtype=torch.bool)  # attention in both directions
    logits = model(input_ids=torch.tensor(rows), attention_mask=seen, use_cache=False).logits
    log_probabilities = logits[torch.tensor(places).unbind(1)].log_softmax(-1)
    return -(torch.stack(weights) * log_probabilities[range(len(targets)), targets]).sum()


def update(llm: LLM, model: PreTrainedModel, optimizer: torch.optim.Optimizer, problems: Problems, seed: int) -> float:
    """Sample a group of answers to each problem, learn from each group, and return the mean reward."""
    params = SamplingParams(max_tokens=MAX_TOKENS, temperature=1.0, n=SAMPLES, seed=seed, step_map=True)
    groups, rewards = [list[Output]() for _ in problems], torch.zeros(len(problems), SAMPLES)
    optimizer.zero_grad()
    for index, output in llm.stream([problem.prompt for problem in problems], params):
        number = index // SAMPLES
        rewards[number, len(groups[number])] = reward(problems[number], output)
        groups[number].append(output)
        if len(groups[number]) == SAMPLES:
            advantages = rewards[number] - rewards[number].mean()
            if advantages.any():
                (loss_of(model, groups[number], advantages) / len(problems)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    llm.update_weights(model.state_dict())
    return rewards.mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=15)
    parser.add_argument("--problems", type=int, default=200, help="problems to measure the accuracy on")
    options = parser.parse_args()
    llm = LLM(MODEL, accept_threshold=THRESHOLD, cache="none")
    model = AutoModelForCausalLM.from_pretrained(tiny.path(MODEL), dtype=torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    measured, trained = tiny.problems(options.problems, seed=0), tiny.problems(PROMPTS * options.updates, seed=1)
    print("before: accuracy {:.3f}, standard error {:.3f}".format(*accuracy(llm, measured)))
    for number in range(options.updates):
        batch = trained[number * PROMPTS : (number + 1) * PROMPTS]
        print(f"update {number + 1}: mean reward {update(llm, model, optimizer, batch, seed=1000 * number):.2f}", flush=True)
    print("after: accuracy {:.3f}, standard error {:.3f}".format(*accuracy(llm, measured)))


if __name__ == "__main__":
    main()
