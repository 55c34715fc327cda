"""Local convolution, selections and the confidence head: by their definitions, and nothing at their start."""

import pytest
import torch

from analysis.errors import DataError
from drafters.axes import DrafterConfig
from drafters.model.confidence import ConfidenceHead
from drafters.model.drafter import Drafter
from drafters.model.head import OutputRows
from drafters.model.mixing import LocalConvolution, local_convolution
from drafters.model.selection import MarkovHead, PathSelector, walk
from drafters.settings import parse
from tests.drafters.configs import drafter_config

ADDITIONS = {
    "conv": {"mixing": "conv", "conv_group_size": 8},
    "path": {"selection": "path", "selection_rank": 6, "selection_top_k": 4},
    "markov": {"selection": "markov", "selection_rank": 6},
    "markov_gated": {"selection": "markov_gated", "selection_rank": 6},
    "confidence": {"confidence": "head"},
}
FUSIONS = ("concat", "gated", "layerwise", "layerwise_gated")


def randomised(module, seed=0):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g) * 0.5)
    return module


def outputs(vocab, hidden, ids=None, seed=1):
    ids = torch.arange(vocab) if ids is None else torch.tensor(ids)
    row_of = torch.full((vocab,), -1)
    row_of[ids] = torch.arange(len(ids))
    weight = torch.randn(vocab, hidden, generator=torch.Generator().manual_seed(seed))
    return OutputRows(weight[ids], ids, None, row_of)


def draft(drafter, head):
    """Hidden states and drafted tokens of three blocks in each of two sequences."""
    config, g = drafter.config, torch.Generator().manual_seed(2)
    features = torch.randn(2, 9, len(config.target_layer_ids), config.hidden_size, generator=g)
    embeddings = torch.randn(2, 3, config.block_size, config.hidden_size, generator=g)
    anchors = torch.tensor([[1, 4, 8], [2, 3, 9]])
    with torch.no_grad():
        hidden = drafter.draft_hidden(features, embeddings, anchors)[:, :, 1:]
        first = torch.tensor([[5, 6, 7], [8, 9, 10]])
        return hidden, torch.stack(list(walk(drafter.selection, head, hidden, head.logits(hidden), first)), -1)


@pytest.mark.parametrize("vocabulary", [None, (2, 3, 5, 8, 13, 21, 34)])
@pytest.mark.parametrize("fusion", FUSIONS)
def test_every_addition_starts_as_nothing(fusion, vocabulary):
    common = {"fusion": fusion, "draft_vocab": vocabulary}
    head = outputs(53, 24, vocabulary)
    plain = draft(Drafter(drafter_config(**common)).initialise(0), head)
    everything = ADDITIONS["conv"] | ADDITIONS["path"] | ADDITIONS["confidence"]
    for added in (*ADDITIONS.values(), everything):
        found = draft(Drafter(drafter_config(**common, **added)).initialise(0), head)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, plain, strict=True))


def test_a_convolution_is_its_sum():
    config = drafter_config(mixing="conv", conv_kernel_size=3, conv_group_size=8)
    conv = randomised(LocalConvolution(config))
    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(3))
    kernels = conv.kernel_projection(x).view(2, 5, 2, 3, 3)
    mixed, delta = conv.before(x)
    for side, (given, found) in enumerate(((x, mixed), (2 * x, conv.after(2 * x, delta)))):
        for block in range(2):
            for slot in range(5):
                for channel in (0, 7, 8, 23):
                    total = sum(
                        (conv.base_kernel[side, tap, channel] + kernels[block, slot, side, tap, channel // 8])
                        * given[block, slot - tap, channel]
                        for tap in range(min(3, slot + 1))
                    )
                    assert float(found[block, slot, channel]) == pytest.approx(float(total), rel=1e-4, abs=1e-5)


def test_a_block_shorter_than_the_kernel_has_what_there_is():
    base, delta = torch.ones(3, 4), torch.zeros(2, 3, 1)
    x = torch.tensor([[1.0] * 4, [10.0] * 4])
    assert local_convolution(x, base, delta)[:, 0].tolist() == [1, 11]


@pytest.mark.parametrize("vocabulary", [None, (2, 3, 5, 8, 13, 21, 34)])
@pytest.mark.parametrize("kind", ["path", "markov", "markov_gated"])
def test_scores_are_those_of_the_formula(kind, vocabulary):
    """Slot by slot and candidate by candidate, with numbers instead of gathers; previous tokens in the vocabulary and
    outside it."""
    config = drafter_config(**ADDITIONS[kind], draft_vocab=vocabulary)
    drafter = randomised(Drafter(config))
    selection, head = drafter.selection, outputs(53, 24, vocabulary)
    hidden = torch.randn(4, 24, generator=torch.Generator().manual_seed(4))
    previous = torch.tensor([2, 34, 50, 13])
    logits = head.logits(hidden)
    with torch.no_grad():
        found = selection.candidates(hidden, logits, previous)
        for n in range(4):
            row = int(head.row_of[previous[n]])
            if isinstance(selection, PathSelector):
                best = sorted(range(len(head.ids)), key=lambda r: -float(logits[n, r]))[:4]
                assert found.rows[n].tolist() == best
                before = selection.predecessor_codebook[row] if row >= 0 else torch.zeros(6)
                context = before * (selection.hidden_projection.weight @ hidden[n])
                expected = [float(logits[n, c] + context @ selection.successor_codebook[c]) for c in best]
            else:
                assert isinstance(selection, MarkovHead) and found.rows is None
                before = selection.markov_w1.weight[row] if row >= 0 else torch.zeros(6)
                if kind == "markov_gated":
                    gate = selection.gate_proj.weight @ torch.cat((hidden[n], before)) + selection.gate_proj.bias
                    before = before * torch.sigmoid(gate)
                expected = (logits[n] + selection.markov_w2.weight @ before).tolist()
            assert found.scores[n].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_walk_reads_the_token_that_it_chose():
    """A Markov head that leads from each token to the next one up: the walk counts, wherever it starts."""
    config = drafter_config(selection="markov", selection_rank=53)
    drafter = Drafter(config).initialise(0)
    with torch.no_grad():
        drafter.markov_head.markov_w1.weight.copy_(torch.eye(53))
        drafter.markov_head.markov_w2.weight.copy_(100 * torch.eye(53).roll(1, 0))
    head = outputs(53, 24)
    hidden = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(5))
    tokens = torch.stack(list(walk(drafter.selection, head, hidden, head.logits(hidden), torch.tensor([7, 50]))), -1)
    assert tokens.tolist() == [[8, 9, 10, 11, 12], [51, 52, 0, 1, 2]]


def test_tokens_of_a_prompt_are_beyond_the_tables():
    """Rows that ``prompt_tokens`` adds keep their logits, whatever the token before."""
    for kind in ("path", "markov", "markov_gated"):
        vocabulary = (2, 3, 5, 8, 13, 21, 34)
        drafter = randomised(Drafter(drafter_config(**ADDITIONS[kind], draft_vocab=vocabulary)))
        head = outputs(53, 24, [*vocabulary, 40, 41])
        hidden = torch.randn(3, 24, generator=torch.Generator().manual_seed(6))
        logits = head.logits(hidden)
        found = drafter.selection.candidates(hidden, logits, torch.tensor([3, 5, 40]))
        rows = torch.arange(9).expand(3, 9) if found.rows is None else found.rows
        beyond = rows >= 7
        assert beyond.any()
        assert torch.equal(found.scores[beyond], logits.gather(-1, rows)[beyond])


def test_confidence_reads_the_token_before_where_a_selection_has_one():
    plain = ConfidenceHead(drafter_config(confidence="head"))
    markov = ConfidenceHead(drafter_config(confidence="head", **ADDITIONS["markov"]))
    assert plain.proj.in_features == 24 and markov.proj.in_features == 24 + 6
    hidden, before = torch.randn(3, 24), torch.randn(3, 6)
    with torch.no_grad():
        expected = hidden @ markov.proj.weight[0, :24] + before @ markov.proj.weight[0, 24:] + markov.proj.bias
        assert torch.allclose(markov(hidden, before), expected, atol=1e-6)


def test_parameters_are_counted_by_part():
    added = ADDITIONS["conv"] | ADDITIONS["path"] | ADDITIONS["confidence"]
    counts = Drafter(drafter_config(**added)).parameter_counts()
    plain = Drafter(drafter_config()).parameter_counts()
    assert counts["convolution"] == 2 * 2 * (2 * 2 * 24 + 24 * 2 * 2 * 3)  # layers x sublayers x (kernels + projection)
    assert counts["candidate_selector"] == 2 * 53 * 6 + 24 * 6
    assert counts["confidence_head"] == 24 + 6 + 1
    assert counts["total"] == plain["total"] + sum(counts[n] for n in counts.keys() - plain.keys())


def test_a_group_that_does_not_divide_the_width_is_refused():
    fields = drafter_config().model_dump() | {"mixing": "conv", "conv_group_size": 7}
    with pytest.raises(DataError, match="conv_group_size 7 does not divide the hidden size 24"):
        parse(DrafterConfig, fields, "here")
