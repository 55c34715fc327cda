"""The ``replay`` protocol: it says what decoding does, step by step, and logs every position besides."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import DataError, run_command
from analysis.runlog.load import load
from analysis.runlog.reading import Run
from analysis.runlog.step_rules import broken_rules
from drafters.checkpoints.folder import load_drafter
from drafters.commands import baseline, evaluate, train
from drafters.decoding.decode import decode
from drafters.decoding.lookup import lookup
from drafters.evaluation.arms import CANDIDATES, NO_DRAFT, BlockArm, LookupArm, NextTokenArm, Passage
from drafters.evaluation.generation import top_two_margin
from drafters.evaluation.lookup_first import LookupFirstArm
from drafters.evaluation.proposing import proposer_of
from drafters.evaluation.replay import Replay, ReplaySettings, count_anchors, walk
from drafters.prompts.sources import messages
from drafters.target.frozen import Target

STEP = ("position", "drafted", "accepted", "emitted", "ended")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def arm(tiny, overfitted):
    return BlockArm(load_drafter(overfitted[0]), tiny)


def replay(target, prompts, arms, **settings):
    protocol = Replay(target, "x", lambda prompt: {"cluster_id": prompt.cluster_id}, ReplaySettings(**settings))
    return [rows.tables for rows in protocol.batch(prompts, arms)]


def steps_of(rows, prompt_id):
    return [tuple(row[name] for name in STEP) for row in rows["acceptance"] if row["prompt_id"] == prompt_id]


@pytest.fixture
def stopping(tiny, overfitted, monkeypatch):
    """The tiny target, with a stop token that many of its answers reach."""
    prompts = [tiny.encode_chat(messages(prompt)) for prompt in overfitted[1]]
    answers = tiny.greedy(prompts, 32, stop=False).tokens
    inside = Counter(token for answer in answers for token in set(answer[4:]))
    token = next(token for token, count in inside.most_common() if count <= len(answers) * 2 // 3)
    monkeypatch.setattr(tiny, "stop_ids", frozenset({token}))
    return tiny


@pytest.mark.parametrize(
    ("kind", "limit", "block_size"), [(BlockArm, 32, None), (BlockArm, 21, 5), (LookupFirstArm, 32, 6)]
)
def test_the_walk_is_decoding_step_by_step(stopping, overfitted, kind, limit, block_size):
    prompts, arm = overfitted[1], kind(load_drafter(overfitted[0]), stopping)
    (rows,) = replay(stopping, prompts, [arm], max_new_tokens=limit, block_size=block_size, keep_output=True)
    encoded = [stopping.encode_chat(messages(prompt)) for prompt in prompts]
    decoded = decode(stopping, proposer_of(arm, stopping, block_size), encoded, max_new_tokens=limit).sequences
    outputs = {row["prompt_id"]: row for row in rows["prompts"]}
    endings, compared = Counter(), 0
    for prompt, asked, found in zip(prompts, encoded, decoded, strict=True):
        row = outputs[prompt.prompt_id]
        if found.tokens != row["output_ids"]:  # decoding in blocks rounds differently; only a near-tie may show it
            first = next(i for i, (a, b) in enumerate(zip(found.tokens, row["output_ids"], strict=False)) if a != b)
            assert top_two_margin(stopping, [*asked, *found.tokens[:first]]) < 1e-3, prompt.prompt_id
            continue
        of_decoding = [
            (position, step.drafted, step.accepted, step.emitted, step.ended)
            for position, step in zip(found.positions, found.steps, strict=True)
        ]
        assert steps_of(rows, prompt.prompt_id) == of_decoding
        assert row["steps"] == len(of_decoding) and row["finish_reason"] == found.finish_reason
        endings.update(step.ended for step in found.steps)
        compared += 1
    assert compared >= len(prompts) - 2
    assert set(endings) == {"mismatch", "block", "stop", "length"}


def test_every_position_is_logged_and_the_walk_is_among_them(stopping, overfitted, arm):
    (rows,) = replay(stopping, overfitted[1][:20], [arm], max_new_tokens=24)
    anchors = {(row["prompt_id"], row["position"]): row for row in rows["anchors"]}
    assert len(anchors) == len(rows["anchors"])
    for row in rows["prompts"]:
        first = row["prompt_tokens"]
        of_prompt = [position for prompt, position in anchors if prompt == row["prompt_id"]]
        assert of_prompt == list(range(first, first + row["output_tokens"] - 1))
    for step in rows["acceptance"]:
        anchor = anchors[step["prompt_id"], step["position"]]
        assert (anchor["eligible"], anchor["accepted"]) == (step["eligible"], step["accepted"])


def test_entropy_and_margin_are_those_of_the_next_token(tiny, overfitted, arm):
    prompts = overfitted[1][:3]
    (rows,) = replay(tiny, prompts, [arm], max_new_tokens=9, keep_output=True)
    for prompt, row in zip(prompts, rows["prompts"], strict=True):
        asked = tiny.encode_chat(messages(prompt))
        tokens = torch.tensor([[*asked, *row["output_ids"]]])
        logits = tiny.model(tokens).logits[0, len(asked) : -1].double()  # after each anchor
        p = logits.softmax(-1)
        best = logits.sort(descending=True).values
        found = [anchor for anchor in rows["anchors"] if anchor["prompt_id"] == prompt.prompt_id]
        half = 0.5 / 1024 + 1e-4
        assert np.allclose([a["entropy"] for a in found], -(p * p.log()).sum(-1).numpy(), rtol=0, atol=half)
        assert np.allclose([a["margin"] for a in found], (best[:, 0] - best[:, 1]).numpy(), rtol=0, atol=half)


def test_arms_share_one_answer_and_do_not_touch_each_other(tiny, overfitted, arm, monkeypatch):
    prompts, asked = overfitted[1][:6], []
    greedy = Target.greedy
    monkeypatch.setattr(Target, "greedy", lambda self, *a, **k: asked.append(1) or greedy(self, *a, **k))
    together = replay(tiny, prompts, [arm, LookupArm(8)], max_new_tokens=16)
    assert together == [replay(tiny, prompts, [one], max_new_tokens=16)[0] for one in (arm, LookupArm(8))]
    assert len(asked) == 1  # the others were in the cache
    assert together[0]["gate_stats"] and not together[1]["gate_stats"]


def test_ranks_are_places_among_the_drafts_own_probabilities(stopping, overfitted, arm):
    prompts = overfitted[1][:12]
    rows, bare = replay(stopping, prompts, [arm, LookupArm(16)], max_new_tokens=20, keep_output=True)
    anchors = rows["anchors"]
    for row in anchors:
        assert len(row["ranks"]) == row["eligible"]
        leading = next((i for i, rank in enumerate(row["ranks"]) if rank), len(row["ranks"]))
        assert leading == row["accepted"]  # each slot drafts its own likeliest token
    assert {rank for row in anchors for rank in row["ranks"]} >= {0, 1, CANDIDATES}
    assert all(row["ranks"] is None for row in bare["anchors"])
    # by the definition, of one block
    outputs = {row["prompt_id"]: row["output_ids"] for row in rows["prompts"]}
    row = next(row for row in anchors if row["eligible"] >= 5 and 0 < max(row["ranks"][:5]) < CANDIDATES)
    prompt = next(p for p in prompts if p.prompt_id == row["prompt_id"])
    asked = stopping.encode_chat(messages(prompt))
    tokens = torch.tensor([*asked, *outputs[prompt.prompt_id]])
    anchor, config = row["position"], arm.drafter.config
    block = min(config.block_size, len(asked) + 20 - anchor)
    features = stopping.forward(tokens[None, :anchor], layer_ids=arm.layer_ids).features
    ids = torch.full((1, 1, block), config.mask_token_id)
    ids[0, 0, 0] = tokens[anchor]
    with torch.no_grad():
        hidden = arm.drafter.draft_hidden(features, stopping.embed(ids), torch.tensor([[anchor]]))[0, 0, 1:]
        order = (hidden @ stopping.head_weight.T).argsort(-1, descending=True)
    for slot, rank in enumerate(row["ranks"]):
        place = (order[slot] == tokens[anchor + 1 + slot]).nonzero().item()
        assert rank == min(place, CANDIDATES)


def test_a_block_size_that_was_not_trained_is_refused(tiny, overfitted, arm):
    with pytest.raises(DataError, match="--block-size 17"):
        replay(tiny, overfitted[1][:1], [arm], block_size=17)


def test_nothing_after_an_anchor_reaches_its_draft(tiny, arm):
    rng = np.random.default_rng(0)
    tokens = rng.integers(4, 12, 40)
    features = torch.randn(39, 2, tiny.hidden_size, generator=torch.Generator().manual_seed(0))
    anchors, sizes = np.array([9, 10, 25]), np.array([16, 4, 16])
    other, disturbed = tokens.copy(), features.clone()
    other[11:] = rng.integers(4, 12, 29)
    disturbed[10:] += 1
    other[25] = 4 + (tokens[25] - 3) % 8
    successor = rng.permutation(272)
    for one in (arm, LookupArm(16), NextTokenArm(successor, 16)):
        read = one is arm
        (drafts,) = one.propose([Passage(tokens, 5, features if read else features[:, :0], anchors, sizes)])
        (changed,) = one.propose([Passage(other, 5, disturbed if read else features[:, :0], anchors, sizes)])
        assert drafts.shape == (3, 15)
        assert (drafts[:2] == changed[:2]).all() and (drafts[2] != changed[2]).any()
        assert (drafts[1, 3:] == NO_DRAFT).all() and (drafts[0] != NO_DRAFT).all()


def test_passages_of_any_lengths_together_are_drafted_as_alone(tiny, arm, monkeypatch):
    monkeypatch.setattr("drafters.evaluation.arms._SLOTS", 96)  # several groups, and blocks in several pieces
    rng, generator = np.random.default_rng(1), torch.Generator().manual_seed(1)
    passages = []
    for length, count in ((12, 3), (40, 20), (7, 0), (30, 1)):
        features = torch.randn(length, 2, tiny.hidden_size, generator=generator)
        anchors = np.sort(rng.choice(np.arange(1, length), count, replace=False))
        passages.append(Passage(rng.integers(4, 200, length), 1, features, anchors, rng.integers(1, 17, count)))
    alone = [arm.propose([passage])[0] for passage in passages]
    for one, other in zip(arm.propose(passages), alone, strict=True):
        assert one.tolist() == other.tolist()


def test_training_free_arms_propose_what_they_say():
    tokens = np.array([1, 2, 3, 1, 2])
    passage = Passage(tokens, 1, torch.empty(5, 0, 0), np.array([2, 4]), np.array([4, 3]))
    assert LookupArm(4).propose([passage])[0].tolist() == [[NO_DRAFT] * 3, [*lookup(tokens, 2), NO_DRAFT]]
    successor = np.array([1, 2, 0, 3])
    assert NextTokenArm(successor, 4).propose([passage])[0].tolist() == [[3, 3, 3], [0, 1, NO_DRAFT]]


def decoded_plainly(drafts, answer, stop_ids):
    """Steps (place, accepted, emitted) by the definition: take drafted tokens while they are the answer's, then the
    answer's next token, until the stop token or the end."""
    place, steps = 0, []
    while place < len(answer) - 1:
        taken = []
        for token in drafts[place]:
            if token == NO_DRAFT or token != answer[place + 1 + len(taken)]:
                break
            if len(taken) + place + 2 == len(answer):  # the last token is the target's own in any case
                break
            taken.append(token)
        steps.append((place, len(taken), len(taken) + 1))
        place += len(taken) + 1
    return steps


@given(st.data())
def test_counts_and_walk_are_those_of_the_definition(data):
    answer = data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=12))
    slots = data.draw(st.integers(0, 4))
    drafts = [data.draw(st.lists(st.integers(0, 2), max_size=slots)) for _ in answer[1:]]
    table = np.array([[*d, *[NO_DRAFT] * (slots - len(d))] for d in drafts]).reshape(len(drafts), slots).astype(int)
    stop_ids = {answer[-1]} if data.draw(st.booleans()) and answer[-1] not in answer[:-1] else set()
    counts = count_anchors(table, answer, stop_ids)
    steps = [(place, counts[place].accepted, counts[place].emitted) for place in walk(counts)]
    assert steps == decoded_plainly(table.tolist(), answer, stop_ids)
    assert sum(emitted for *_, emitted in steps) == len(answer) - 1
    for place, count in enumerate(counts):
        assert count.drafted == len(drafts[place])
        assert count.accepted <= count.eligible == min(count.drafted, len(answer) - 2 - place)
        if count.accepted < count.eligible:
            assert count.ended == "mismatch"


def test_a_miss_that_the_vocabulary_decided():
    counts = count_anchors(np.array([[5, 6], [6, 1], [1, 1]]), [4, 5, 7, 6], {6}, {4, 5, 6})
    assert [count.ended for count in counts] == ["vocabulary", "vocabulary", "stop"]


# --- the command -----------------------------------------------------------------------------------------------

COMMON = ["--protocol", "replay", "--max-new-tokens", "20", "--prompts", "test.jsonl"]


def run(command, *argv):
    return run_command(command.main, list(argv))


def rows(name, table, *drop):
    return Run.open(name).read(table).to_pandas().drop(columns=list(drop))


@pytest.fixture
def trained(workplace):
    assert run(train, "arm.yaml", "--set", "training.steps=4") == 0
    return workplace


def test_the_log_is_a_sound_run(trained):
    assert run(evaluate, "arm", *COMMON) == 0
    opened = Run.open("arm")
    (evaluation,) = opened.manifest.evaluations.values()
    assert evaluation.protocol == "replay" and evaluation.block_size == 6
    evaluated = load(opened, "replay")
    assert len(evaluated.prompts) == 12 and not broken_rules(evaluated)
    prompts = rows("arm", "prompts")
    assert evaluated.prompts["tokens"].sum() == (prompts["output_tokens"] - 1).sum()
    assert prompts["output_ids"].isna().all() and prompts["matches_baseline"].all()
    assert opened.has("gates") and not opened.has("timings")
    assert len(rows("arm", "anchors")) == (prompts["output_tokens"] - 1).sum()


def test_it_agrees_with_generate_on_the_same_prompts(trained):
    assert run(evaluate, "arm", *COMMON) == 0
    assert run(evaluate, "arm", "--protocol", "generate", *COMMON[2:]) == 0
    steps = rows("arm", "acceptance", "eval_id", "eligible")
    one, other = (
        steps[steps["protocol"] == protocol].drop(columns="protocol").sort_values(["prompt_id", "step"])
        for protocol in ("replay", "generate")
    )
    assert one.to_dict("records") == other.to_dict("records")


def test_a_smaller_block_is_part_of_the_record(trained, capsys):
    assert run(evaluate, "arm", *COMMON, "--block-size", "3") == 0
    (evaluation,) = Run.open("arm").manifest.evaluations.values()
    assert evaluation.block_size == 3
    assert rows("arm", "acceptance")["drafted"].max() == 2
    assert run(evaluate, "arm", *COMMON, "--block-size", "7") == 65
    assert "--block-size 7" in capsys.readouterr().err


def test_ranks_and_a_stop_leave_the_same_tables(trained, monkeypatch):
    command = [*COMMON, "--batch-size", "4"]
    ask, asked = Replay.batch, []

    def dying(self, prompts, arms):
        asked.append(prompts[0].prompt_id)
        if len(asked) == 2:
            raise RuntimeError("pulled the plug")
        return ask(self, prompts, arms)

    monkeypatch.setattr(Replay, "batch", dying)
    assert run(evaluate, "arm", *command) == 70
    assert run(evaluate, "arm", *command) == 0
    assert len(asked) == 4
    assert run(train, "arm.yaml", "--set", "training.steps=4", "--run", "runs/ranks") == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        assert run(evaluate, "ranks", *command) == 0
    key = ["prompt_id", "position"]
    for table in ("acceptance", "anchors"):
        alone, shared = (rows(name, table).sort_values(key, ignore_index=True) for name in ("arm", "ranks"))
        assert shared.equals(alone)


def test_a_conversation_goes_on_with_the_targets_own_answers(trained, monkeypatch):
    line = {"question_id": 1, "category": "x", "turns": ["Say a word.", "And another one."]}
    (trained / "talk.jsonl").write_text(json.dumps(line) + "\n")
    seen = []
    encode = Target.encode_chat
    monkeypatch.setattr(Target, "encode_chat", lambda self, chat, **k: seen.append(chat) or encode(self, chat, **k))
    assert run(evaluate, "arm", *COMMON[:-1], "talk.jsonl", "--keep-output") == 0
    prompts = rows("arm", "prompts")
    assert prompts["turn"].tolist() == [0, 1]
    target = Target.load(Run.open("arm").manifest.training.settings["target"])
    first = target.decode(prompts["output_ids"][0])
    assert [m["content"] for m in seen[-1]] == ["Say a word.", first, "And another one."]


def test_what_belongs_to_generate_is_refused(trained, capsys):
    assert run(evaluate, "arm", *COMMON, "--temperature", "1") == 64
    assert "--temperature is for --protocol generate" in capsys.readouterr().err


def test_lookup_in_front_is_a_run_beside_its_parent(trained, capsys):
    assert run(evaluate, "arm", "--with-lookup", *COMMON) == 0
    assert run(evaluate, "arm", *COMMON) == 0
    found = Run.open("arm-lookup").manifest
    assert (found.parent, found.variant, found.label) == (
        "arm",
        "lookup",
        f"{Run.open('arm').manifest.label or 'arm'} + lookup",
    )
    assert rows("arm-lookup", "prompts")["output_hash"].tolist() == rows("arm", "prompts")["output_hash"].tolist()
    assert not Run.open("arm-lookup").has("gate_stats")
    assert run(baseline, "arm.yaml", "--kind", "prompt-lookup") == 0
    assert run(evaluate, "prompt-lookup", "--with-lookup", *COMMON) == 65
    assert "requires a run of a trained drafter" in capsys.readouterr().err


def test_baselines_are_evaluated_beside_an_arm(trained):
    assert run(baseline, "arm.yaml", "--kind", "prompt-lookup") == 0
    assert run(baseline, "arm.yaml") == 0
    assert run(evaluate, "arm", "prompt-lookup", "next-token", *COMMON) == 0
    hashes = [rows(name, "prompts")["output_hash"].tolist() for name in ("arm", "prompt-lookup", "next-token")]
    assert hashes[0] == hashes[1] == hashes[2]
    lookups = rows("prompt-lookup", "acceptance")
    assert lookups["drafted"].max() == 5 and lookups["emitted"].sum() == rows("arm", "acceptance")["emitted"].sum()
    assert Run.open("prompt-lookup").manifest.drafter.config["kind"] == "prompt-lookup"
