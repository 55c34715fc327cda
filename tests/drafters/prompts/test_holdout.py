"""Prompts held out of a training by name, and repeated questions with other answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import DataError, run_command
from analysis.runlog.reading import Run
from drafters.commands import evaluate, train
from drafters.corpus.build import build_corpus
from drafters.prompts.holdout import Holdout, hold_out
from drafters.prompts.identity import make_prompt, remove_overlap
from drafters.prompts.sources import load_prompts
from tests.tiny import tiny_target


def paraphrases(count):
    """Three prompts to every original question."""
    return [
        make_prompt([f"{n} in words {k}"], "words", original=f"what is {n}") for n in range(count) for k in range(3)
    ]


@given(st.integers(1, 9), st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_same_prompts_whatever_their_order(count, seed, random):
    prompts = paraphrases(10)
    shuffled = random.sample(prompts, len(prompts))
    for by in ("prompt", "question"):
        holdout = Holdout(count=count, seed=seed, by=by)
        (training, held), (_, again) = hold_out(prompts, holdout), hold_out(shuffled, holdout)
        assert len(held) == count and {p.prompt_id for p in held} == {p.prompt_id for p in again}
        assert not {p.prompt_id for p in held} & {p.prompt_id for p in training}
        assert len(training) == 30 - count * (1 if by == "prompt" else 3)
        if by == "question":
            assert not {p.cluster_id for p in held} & {p.cluster_id for p in training}


def test_another_seed_holds_out_others():
    drawn = [hold_out(paraphrases(40), Holdout(count=20, seed=seed, by="prompt"))[1] for seed in (0, 1)]
    assert {p.prompt_id for p in drawn[0]} != {p.prompt_id for p in drawn[1]}


def test_what_is_held_out_by_prompt_stays_askable():
    """The removal of overlap took every such prompt, since others of its question are trained on."""
    training, held = hold_out(paraphrases(10), Holdout(count=5, by="prompt"))
    assert len(remove_overlap(held, training).kept) == 5
    assert len(remove_overlap(held, [*training, held[0]]).kept) == 4
    plain = [make_prompt(p.turns, "words", original="what is 3") for p in held]
    assert remove_overlap(plain, paraphrases(4)).kept == ()


def test_holding_out_everything_is_refused():
    for count, by in ((30, "prompt"), (10, "question")):
        with pytest.raises(DataError, match="leave no training data"):
            hold_out(paraphrases(10), Holdout(count=count, by=by))


def test_repeated_questions_with_other_answers_are_examples_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTLAB_CACHE", str(tmp_path))
    rows = [("Why?", "So."), ("How?", "Thus."), ("Why?", "Because."), ("Why?", "So.")]
    text = "\n".join(json.dumps({"query": q, "response": a}) for q, a in rows)
    (tmp_path / "meta.jsonl").write_text(text)
    source = str(tmp_path / "meta.jsonl")
    assert len(load_prompts([source])) == 2
    prompts = load_prompts([source], answers=True)
    assert [p.answers[0] for p in prompts] == ["So.", "Thus.", "Because."]
    corpus = build_corpus(tiny_target(), prompts, layer_ids=(), max_new_tokens=8, given_answers=True)
    assert len(corpus) == len(set(corpus.example_ids)) == 3
    training, held = hold_out(prompts, Holdout(count=1, by="prompt"))
    assert not {p.prompt_id for p in training} & {p.prompt_id for p in held}


def run(command, *argv):
    return run_command(command.main, list(argv))


def test_arms_hold_out_the_same_and_are_asked_it_by_name(workplace, capsys):
    holdout = ["--set", "corpus.holdout={count: 6, seed: 1, by: question}", "--set", "training.steps=2"]
    for name, fusion in (("a", "concat"), ("b", "layerwise")):
        assert run(train, "arm.yaml", *holdout, "--run", f"runs/{name}", "--set", f"drafter.fusion={fusion}") == 0
    assert Run.open("a").manifest.training.examples == 14
    assert run(evaluate, "a", "b", "--prompts", "heldout:a") == 0
    asked = [set(Run.open(name).read("prompts")["prompt_id"].to_pylist()) for name in "ab"]
    assert asked[0] == asked[1] and len(asked[0]) == 6
    assert Run.open("a").manifest.caveats == []
    assert run(train, "arm.yaml", "--set", "training.steps=2", "--run", "runs/c") == 0
    assert run(evaluate, "c", "--prompts", "heldout:c") == 65
    assert "no corpus.holdout" in capsys.readouterr().err
    assert run(evaluate, "c", "--prompts", "heldout:a") == 65  # trained on them
    lines = (workplace / "train.jsonl").read_text().splitlines()
    (workplace / "train.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    assert run(evaluate, "a", "--prompts", "heldout:a:3") == 65
    assert "other prompts than it was trained on" in capsys.readouterr().err
