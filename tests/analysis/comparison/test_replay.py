"""Runs under ``replay`` are compared like decoded ones, and whole answers come before first blocks."""

import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.comparison.question import headline_of
from analysis.errors import UsageError
from analysis.report.answers import first_cautions
from analysis.report.render import report
from analysis.runlog.reading import Run
from analysis.runlog.writing import RunWriter
from analysis.wording import TAU_MEAN, TAU_POOLED
from tests.analysis.runs import prompts_of, two_runs, write_run

A = [[1, 0, 2], [0, 3], [2, 2], [1, 1, 0, 2], [4], [0, 0, 1]]
B = [[2, 1], [1, 3], [3, 2], [1, 2, 1], [5], [0, 2]]


def with_other_rows(folder, other):
    """Add the rows of another run of the same arm, under its own protocol."""
    given = Run.open(other)
    writer = RunWriter.resume(folder)
    (part,) = given.manifest.evaluations
    for name in ("acceptance", "prompts", "gates", "gate_stats"):
        writer.append(name, given.read(name), part=part)
    writer.manifest.evaluations |= given.manifest.evaluations
    writer.commit()
    return folder


@pytest.fixture
def replayed(tmp_path):
    return two_runs(tmp_path, A, B, protocol="replay")


def test_tau_is_that_of_the_same_steps_decoded(tmp_path, replayed):
    decoded = two_runs(tmp_path / "decoded", A, B, protocol="generate")
    found, other = compare_runs(*replayed), compare_runs(*decoded)
    assert (found.protocol, found.estimand) == ("replay", TAU_POOLED)
    assert found.overall == other.overall
    assert [e.estimand for e in found.others] == [e.estimand for e in other.others]
    assert found.outputs.answers == other.outputs.answers
    assert found.outputs.a.checked == 0  # nothing was decoded, so nothing can be lossless


def test_whole_answers_come_first_and_each_metric_once(tmp_path, replayed):
    for protocol, counts in (("generate", (A, B)), ("prefix", ([1, 2, 3, 1, 2, 3], [2, 2, 3, 1, 2, 4]))):
        for folder, other in zip(replayed, two_runs(tmp_path / protocol, *counts, protocol=protocol), strict=True):
            with_other_rows(folder, other)
    a, b = map(Run.open, replayed)
    assert headline_of(a, b, None, None) == ("replay", TAU_POOLED)
    assert headline_of(a, b, None, "tau_mean") == ("replay", TAU_MEAN)
    assert headline_of(a, b, "generate", "tau_mean") == ("generate", TAU_MEAN)
    assert headline_of(a, b, None, "accepted_length")[0] == "prefix"
    with pytest.raises(UsageError, match="belongs to protocol replay or generate, not prefix"):
        headline_of(a, b, "prefix", "tau_mean")
    for protocol in (None, "generate", "prefix"):
        found = compare_runs(a, b, protocol=protocol)
        keys = [e.estimand.key for e in (found.overall, *found.others)]
        assert {"tau_pooled", "accepted_length"} <= set(keys) and len(set(keys)) == len(keys)
        assert found.a.gates is not None


def with_anchors(folder, lengths, entropies, ranks=None):
    """Log every position: accepted tokens by prompt, from prompt token 20 on, the target's entropy there, and the ranks
    of the answer's tokens."""
    rows = [
        {"eval_id": next(iter(Run.open(folder).manifest.evaluations)), "protocol": "replay", "turn": 0, "sample": 0}
        | {"prompt_id": f"p{i:03d}", "temperature": 0.0, "dataset": "sums", "position": 20 + place}
        | {"eligible": 7, "accepted": accepted, "entropy": entropies[place % len(entropies)], "margin": 1.0}
        | {"ranks": None if ranks is None else ranks[place]}
        for i, of_prompt in enumerate(lengths)
        for place, accepted in enumerate(of_prompt)
    ]
    writer = RunWriter.resume(folder)
    writer.append("anchors", rows, part="all")
    writer.commit()


def test_an_oracle_among_candidates_by_hand(replayed):
    """Answers of five tokens: an oracle goes as far as the right token is among the candidates, and one further."""
    a, b = replayed
    ranks_a = [[0, 1, 16], [0, 0], [3], []]  # of the slots after the first four tokens of an answer
    ranks_b = [[0, 0, 0], [5, 0], [0], []]
    for folder, ranks in ((a, ranks_a), (b, ranks_b)):
        with_anchors(folder, [[0] * 4] * 6, (0.0,), [*ranks] * 6)
    found = compare_runs(a, b)
    of_a, of_b = (h.oracle.set_index("k")["tau"].to_dict() for h in found.headroom)
    # A, one candidate: 1 accepted at the first token, then from the third position none, and the last: 3 steps
    assert of_a == {1: 4 / 3, 2: 4 / 2, 4: 4 / 2, 8: 4 / 2, 16: 4 / 2}
    assert of_b == dict.fromkeys((1, 2, 4, 8, 16), 4 / 1)
    recall = found.headroom[0].recall
    assert recall["n"].tolist() == [18, 12, 6]
    assert recall["recall_1"].tolist() == pytest.approx([2 / 3, 1 / 2, 0])
    assert recall["recall_2"].tolist() == pytest.approx([2 / 3, 1, 0])
    assert recall["recall_4"].tolist() == pytest.approx([1, 1, 0])
    text = report(found, found.figures())
    assert "## Candidates" in text and "| 16 | 2.000 | 4.000 |" in text
    with_anchors(b, [[0] * 4] * 6, (0.0,))  # a run without ranks has no such part
    assert compare_runs(a, b).headroom[0].side == "A" and len(compare_runs(a, b).headroom) == 1


def test_every_position_counts_once_by_place_and_by_entropy(replayed):
    a, b = replayed
    assert compare_runs(a, b).anchors is None
    of_a = [[0, 1, 2, 3, 4, 5], [1, 1], [2, 0, 0], [3], [0, 0, 1], [2, 2, 2, 2, 2]]
    of_b = [[n + 1 for n in of_prompt] for of_prompt in of_a[:-1]] + [of_a[-1]]
    with_anchors(a, of_a, (0.0, 0.5))
    with_anchors(b, of_b, (0.0, 0.5))
    found = compare_runs(a, b)
    flat = [1 + n for of_prompt in of_a for n in of_prompt]
    assert found.anchors.overall.mean_a == pytest.approx(sum(flat) / len(flat))
    assert found.anchors.overall.estimate == pytest.approx(15 / 20)  # one more at 15 of 20 positions
    assert found.anchors.overall in found.others
    places = found.anchors.by_place.set_index("class")
    assert places["n"].to_dict() == {"1-4": 17, "5-8": 3}
    assert places.loc["5-8", "mean_a"] == pytest.approx((5 + 6 + 3) / 3)
    sure = found.anchors.by_entropy.set_index("class")
    even = [1 + n for of_prompt in of_a for n in of_prompt[::2]]
    assert sure["n"].to_dict() == {"0-0.01": len(even), "0.3-1": len(flat) - len(even)}
    assert sure.loc["0-0.01", "mean_a"] == pytest.approx(sum(even) / len(even))
    expected = (found.overall.se / found.overall.mean_a) / (found.anchors.overall.se / found.anchors.overall.mean_a)
    assert found.anchors.precision == pytest.approx(expected**2)
    text = report(found, [])
    assert "At every position of the answers" in text and "0.3-1" in text


def test_an_arm_below_what_needs_no_training_is_named_first(tmp_path, replayed):
    def as_lookup(manifest):
        manifest.drafter.config = {"kind": "prompt-lookup", "block_size": 8}
        manifest.label = "prompt lookup"

    between = [[2, 0, 2], [0, 4], [2, 2], [1, 2, 1], [4], [1, 1]]
    floor = write_run(tmp_path / "lookup", prompts_of(between), protocol="replay", change=as_lookup)
    found = compare_runs(*replayed, controls=[floor])
    below = [c.text for c in found.cautions if c.code == "below-floor"]
    assert len(below) == 1 and below[0].startswith("DFlash is below prompt lookup, which needs no training")
    assert below[0] in first_cautions(found)
