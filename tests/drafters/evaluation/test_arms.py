"""The most-frequent-next-token baseline."""

import numpy as np

from drafters.evaluation.arms import NextTokenArm


def test_successors_are_the_most_frequent_with_ties_to_the_smaller_id():
    answers = [np.array([1, 2, 3, 1, 2, 4, 1, 3]), np.array([4, 5]), np.array([4, 5])]
    arm = NextTokenArm.from_answers(answers, vocab_size=8, block_size=5)
    assert arm.successor[1] == 2  # 1 -> 2 twice, 1 -> 3 once
    assert arm.successor[2] == 3  # 2 -> 3 and 2 -> 4 once each
    assert arm.successor[4] == 5  # 4 -> 5 twice, 4 -> 1 once
    # successors over all: 2, 3, 1, 2, 4, 1, 3, 5, 5; four of them twice, and 1 is the smallest
    assert arm.successor[7] == arm.successor[0] == 1
