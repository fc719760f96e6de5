"""What a model reads and predicts in a lesson."""

import torch

from training.layout import Sample
from training.lessons import DRAFT_WEIGHT, joint_blocks
from training.tokenizer import EOS_ID, MASK_ID

SAMPLES = [Sample((5, 6, 7), tuple(range(10, 31))), Sample((8, 9), tuple(range(40, 50)))]


def test_a_joint_model_predicts_the_next_token_and_masked_tokens():
    for seed in range(20):
        exercise, weights = joint_blocks(SAMPLES, torch.Generator().manual_seed(seed))
        row, place = exercise.predicted.nonzero(as_tuple=True)
        masked = exercise.inputs[row, place] == MASK_ID
        assert ((exercise.inputs == MASK_ID) <= exercise.predicted).all(), "every mask is predicted"
        for number, sample in enumerate(SAMPLES):
            text = [*sample.prompt, *sample.response, *[EOS_ID] * 32]
            own = row == number
            positions = exercise.positions[number, place[own]]
            target = torch.where(masked[own], positions, positions + 1)
            assert exercise.answers[own].tolist() == [text[position] for position in target]
            first, last = len(sample.prompt) - 1, len(sample.prompt) + len(sample.response) - 1
            assert positions[~masked[own]].tolist() == list(range(first, last + 1)), "all of the answer and its end"
        assert (weights[~masked] == 1).all() and (weights[masked] >= DRAFT_WEIGHT - 1e-6).all()
