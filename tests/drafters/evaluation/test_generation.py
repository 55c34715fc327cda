"""The ``generate`` protocol through its command: what it logs, how it shares and resumes its work."""

import json

import pytest
import torch

from analysis.errors import run_command
from analysis.runlog.reading import Run
from drafters.commands import evaluate, generate, train
from drafters.decoding.decode import decode
from drafters.evaluation.generation import Generate, GenerateSettings, top_two_margin
from drafters.prompts.sources import load_prompts, messages
from drafters.target.frozen import Target

COMMON = ["--protocol", "generate", "--max-new-tokens", "20"]


def run(command, *argv):
    return run_command(command.main, list(argv))


@pytest.fixture
def trained(workplace):
    assert run(train, "arm.yaml", "--set", "training.steps=4") == 0
    return workplace


def rows(name, table, *drop):
    return Run.open(name).read(table).to_pandas().drop(columns=list(drop))


def test_what_is_logged(trained):
    assert run(evaluate, "arm", *COMMON, "--prompts", "test.jsonl:4", "--baseline", "--keep-output") == 0
    steps, prompts, timings = (rows("arm", name) for name in ("acceptance", "prompts", "timings"))
    assert len(prompts) == 4 and set(prompts["protocol"]) == {"generate"}
    by_prompt = steps.groupby("prompt_id")["emitted"]
    prompts = prompts.set_index("prompt_id").sort_index()
    # the prefill gives the first token, the steps all others
    assert (by_prompt.sum() == prompts["output_tokens"] - 1).all()
    assert (by_prompt.count() == prompts["steps"]).all()
    assert (prompts["output_ids"].str.len() == prompts["output_tokens"]).all()
    assert prompts["matches_baseline"].all()
    assert prompts["first_mismatch"].isna().all()

    # plain, arm, arm, plain on every prompt
    order = timings.sort_values("order").groupby("prompt_id")["mode"].agg(list)
    assert all(modes == ["plain", "draft", "draft", "plain"] for modes in order)
    parts = timings["draft_s"] + timings["verify_s"] + timings["other_s"]
    assert (abs(parts - timings["decode_s"]) < 1e-9).all()
    plain = timings[timings["mode"] == "plain"]  # a pause of the machine may fall anywhere, so not row by row
    assert plain["draft_s"].sum() < 0.2 * plain["decode_s"].sum()
    described = Run.open("arm").manifest.evaluations.popitem()[1].datasets
    assert next(iter(described.values()))["baseline_differs"] == 0


def test_no_pass_that_is_timed_is_the_first_of_its_kind(trained, monkeypatch):
    passes = []

    def recording(target, drafter, *arguments, **settings):
        output = decode(target, drafter, *arguments, **settings)
        passes.append(("plain" if drafter is None else "draft", output.seconds.decode))
        return output

    monkeypatch.setattr("drafters.evaluation.generation.decode", recording)
    assert run(evaluate, "arm", *COMMON, "--prompts", "test.jsonl:3", "--baseline") == 0
    timings = rows("arm", "timings")
    logged = set(zip(timings["mode"], timings["decode_s"], strict=True))
    assert [mode for mode, _ in passes[:2]] == ["plain", "draft"]
    assert not logged.intersection(passes[:2]) and logged == set(passes[2:])


def test_no_output_is_kept_unless_asked_for(trained):
    assert run(evaluate, "arm", *COMMON, "--prompts", "test.jsonl:2") == 0
    assert rows("arm", "prompts")["output_ids"].isna().all()
    assert not Run.open("arm").has("timings")


def test_batches_give_the_same_steps(trained):
    assert run(train, "arm.yaml", "--set", "training.steps=4", "--run", "runs/other") == 0
    assert run(evaluate, "arm", *COMMON, "--prompts", "test.jsonl") == 0
    assert run(evaluate, "other", *COMMON, "--prompts", "test.jsonl", "--batch-size", "5") == 0
    assert rows("arm", "acceptance", "eval_id").equals(rows("other", "acceptance", "eval_id"))


def test_ranks_share_the_prompts(trained, monkeypatch, capsys):
    assert run(train, "arm.yaml", "--set", "training.steps=4", "--run", "runs/ranks") == 0
    command = [*COMMON, "--prompts", "test.jsonl"]
    assert run(evaluate, "arm", *command) == 0
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in ("2", "0"):
        monkeypatch.setenv("RANK", rank)
        assert run(evaluate, "ranks", *command) == 0
        assert f"rank {rank} is done, others are not" in capsys.readouterr().out
    with pytest.raises(Exception, match="not complete"):
        Run.open("ranks")
    monkeypatch.setenv("RANK", "1")
    assert run(evaluate, "ranks", *command) == 0
    assert len(list((trained / "runs/ranks/acceptance.parquet").glob("*-r*.parquet"))) == 3
    key = ["prompt_id", "step"]
    alone, shared = (rows(name, "acceptance").sort_values(key, ignore_index=True) for name in ("arm", "ranks"))
    assert shared.equals(alone)


def test_a_stopped_evaluation_goes_on(trained, monkeypatch):
    command = [*COMMON, "--prompts", "test.jsonl:5", "--baseline"]
    ask = Generate.batch
    asked = []

    def dying(self, prompts, arms):
        asked.append(prompts[0].prompt_id)
        if len(asked) == 3:
            raise RuntimeError("pulled the plug")
        return ask(self, prompts, arms)

    monkeypatch.setattr(Generate, "batch", dying)
    assert run(evaluate, "arm", *command) == 70
    assert run(evaluate, "arm", *command) == 0
    assert len(asked) == 6  # two whole, one broken off and asked again, and the two others
    assert len(rows("arm", "prompts")) == 5


def test_a_conversation_keeps_the_plain_history(trained, monkeypatch):
    line = {"question_id": 1, "category": "x", "turns": ["Say a word.", "And another one."]}
    (trained / "talk.jsonl").write_text(json.dumps(line) + "\n")
    seen = []
    encode = Target.encode_chat
    monkeypatch.setattr(Target, "encode_chat", lambda self, chat, **k: seen.append(chat) or encode(self, chat, **k))
    assert run(evaluate, "arm", *COMMON, "--prompts", "talk.jsonl") == 0
    assert rows("arm", "prompts")["turn"].tolist() == [0, 1]
    target = Target.load(Run.open("arm").manifest.training.settings["target"])
    first = encode(target, [{"role": "user", "content": "Say a word."}])
    plain = decode(target, None, [first], max_new_tokens=20).sequences[0].tokens
    assert [m["content"] for m in seen[-1]] == ["Say a word.", target.decode(plain), "And another one."]


def test_samples_differ_and_come_again(trained):
    command = [*COMMON, "--prompts", "test.jsonl:3", "--temperature", "1", "--samples", "3", "--keep-output"]
    assert run(evaluate, "arm", *command) == 0
    assert run(train, "arm.yaml", "--set", "training.steps=4", "--run", "runs/again") == 0
    assert run(evaluate, "again", *command) == 0
    first, second = rows("arm", "prompts"), rows("again", "prompts")
    assert first.groupby("prompt_id")["output_hash"].nunique().tolist() == [3, 3, 3]
    assert first["output_hash"].tolist() == second["output_hash"].tolist()
    assert first["matches_baseline"].isna().all()  # samples need not agree with anything


def test_a_mismatch_is_placed_and_weighed(trained, monkeypatch):
    target = Target.load(Run.open("arm").manifest.training.settings["target"])
    prompt = load_prompts(["test.jsonl"])[0]
    asked = target.encode_chat(messages(prompt))
    plain = decode(target, None, [asked], max_new_tokens=20).sequences[0]
    found = decode(target, None, [asked], max_new_tokens=20).sequences[0]
    found.tokens[7] = (found.tokens[7] + 1) % 200
    settings = GenerateSettings()
    verdict = Generate(target, "x", lambda p: {}, settings)._against_baseline(asked, found, plain)
    logits = target.forward(torch.tensor([asked + plain.tokens[:7]]), logits=1).logits[0, -1]
    best = logits.sort(descending=True).values
    assert verdict["first_mismatch"] == 7 and not verdict["matches_baseline"]
    assert verdict["mismatch_margin"] == pytest.approx(float(best[0] - best[1]), rel=1e-5)
    assert top_two_margin(target, asked) > 0


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--prompts", "test.jsonl", "--temperature", "1"], 64, "is for --protocol generate"),
        ([*COMMON, "--prompts", "test.jsonl", "--samples", "2"], 64, "requires --temperature"),
        ([*COMMON, "--prompts", "test.jsonl", "--top-p", "2"], 65, "top_p"),
        ([*COMMON, "--prompts", "nowhere.jsonl"], 65, "no such file"),
    ],
)
def test_bad_calls_are_one_line(trained, capsys, argv, code, words):
    assert run(evaluate, "arm", *argv) == code
    assert words in capsys.readouterr().err.strip().splitlines()[-1]


def test_generate_streams_and_sums_up(trained, capsys):
    assert run(generate, "arm", "What is 5 plus 6?", "--max-new-tokens", "20") == 0
    out = capsys.readouterr().out
    target = Target.load(Run.open("arm").manifest.training.settings["target"])
    asked = target.encode_chat([{"role": "user", "content": "What is 5 plus 6?"}])
    tokens = decode(target, None, [asked], max_new_tokens=20).sequences[0].tokens
    text = target.decode(tokens).rstrip("\ufffd")
    assert text.split()[0] in out
    assert f"{len(tokens)} tokens in" in out and "tau" in out and "the same tokens" in out
