"""What an engine should count: our decoder's steps of an answer, the last one cut or whole."""

import pytest

from drafters.decoding.decode import decode
from drafters.decoding.proposers import LookupProposer
from drafters.serving.loading import Served
from drafters.serving.offline import offline_counts
from tests.tiny import tiny_target

PROMPTS = [[10, 20, 30, 20, 30], [7, 8, 7, 8, 7, 8], [5]]
BLOCK = 4


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.mark.parametrize("length", [2, 5, 9, 24])
def test_the_last_step_is_whole_or_cut(target, length):
    served = Served(target, LookupProposer(BLOCK), "tiny")
    whole = offline_counts(served, PROMPTS, length, ignore_eos=True, whole_last_step=True)
    cut = offline_counts(served, PROMPTS, length, ignore_eos=True, whole_last_step=False)
    # cut: the steps' tokens and the prefill's one are the answers
    assert cut.accepted + cut.steps + len(PROMPTS) == len(PROMPTS) * length
    # whole: the same passes of the target, by tokens of an answer that goes on
    steps = drafts = drafted = accepted = 0
    for prompt in PROMPTS:
        (one,) = decode(
            target, served.proposer, [prompt], max_new_tokens=length + BLOCK, stop_ids=frozenset()
        ).sequences
        tokens = 1
        for step in one.steps:
            if tokens >= length:
                break
            tokens += step.emitted
            steps, drafts = steps + 1, drafts + bool(step.drafted)
            drafted, accepted = drafted + step.drafted, accepted + step.accepted
    assert (whole.steps, whole.drafts, whole.draft_tokens, whole.accepted) == (steps, drafts, drafted, accepted)
    assert whole.steps == cut.steps and whole.accepted >= cut.accepted


def test_answers_end_at_a_stop_token(target):
    (plain,) = decode(target, None, [PROMPTS[0]], max_new_tokens=24, stop_ids=frozenset()).sequences
    stop = plain.tokens[6]
    first = plain.tokens.index(stop) + 1
    served = Served(target, LookupProposer(BLOCK), "tiny")
    original, target.stop_ids = target.stop_ids, frozenset({stop})
    try:
        for whole in (True, False):
            stopped = offline_counts(served, PROMPTS[:1], 24, ignore_eos=False, whole_last_step=whole)
            asked = offline_counts(served, PROMPTS[:1], first, ignore_eos=True, whole_last_step=whole)
            assert stopped.steps == asked.steps
    finally:
        target.stop_ids = original


def test_plain_decoding_has_nothing_to_count(target):
    assert offline_counts(Served(target, None, "tiny"), PROMPTS, 5, ignore_eos=True, whole_last_step=True) is None
