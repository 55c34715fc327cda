"""Answers of a corpus by our own server, with faults: the corpus is that of the built-in loop."""

import json
from pathlib import Path

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from analysis.errors import DataError, run_command  # noqa: E402
from analysis.runlog.reading import Run  # noqa: E402
from drafters.commands import corpus, train  # noqa: E402
from drafters.config import load_config  # noqa: E402
from drafters.corpus.answering import NO_ANSWER  # noqa: E402
from drafters.corpus.answers import asked_of, read_answers  # noqa: E402
from drafters.serving import answers as asking  # noqa: E402
from drafters.target.frozen import Target  # noqa: E402
from drafters.training.corpora import arm_corpus  # noqa: E402
from tests.drafters.serving.conftest import serving  # noqa: E402

FILE = "arm-answers.jsonl"
ONLINE = ["--set", "corpus.features=online"]


class Faults:
    """Around the application: some completions get a 500, some a stream that is closed half-way."""

    def __init__(self, app, kinds):
        self.app, self.kinds, self.seen = app, kinds, 0

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] != "/v1/completions":
            return await self.app(scope, receive, send)
        kind = self.kinds[self.seen % len(self.kinds)]
        self.seen += 1
        if kind == "well":
            return await self.app(scope, receive, send)
        status = 200 if kind == "closed" else int(kind)
        length = [(b"content-length", b"100")] if kind == "closed" else []
        await send({"type": "http.response.start", "status": status, "headers": length})
        await send({"type": "http.response.body", "body": b"{", "more_body": kind == "closed"})
        if kind == "closed":
            raise ConnectionError("closed half-way")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(asking.ask_all, "__kwdefaults__", asking.ask_all.__kwdefaults__ | {"pause_s": 0.001})


@pytest.fixture
def target(target_folder):
    return Target.load(str(target_folder))


def ask(address, *more):
    return run_command(corpus.main, ["arm.yaml", "--engine", address, *ONLINE, "--concurrency", "5", *more])


def examples(target, *overrides):
    config = load_config("arm.yaml", ["corpus.features=online", *overrides])
    return arm_corpus(config, target, config.corpus.training_prompts(), "corpus")


def same(ours, theirs):
    assert ours.example_ids == theirs.example_ids and len(ours) > 10
    assert ours.index["left_out"] == theirs.index["left_out"]
    for a, b in zip(ours, theirs, strict=True):
        assert a.tokens.tolist() == b.tokens.tolist()
        assert a.supervised.tolist() == b.supervised.tolist()
        assert (a.prompt_length, a.dataset, a.cluster_id) == (b.prompt_length, b.dataset, b.cluster_id)


# five are in flight, so that the first five are of five prompts
@pytest.mark.parametrize("kinds", [["well"], ["500", "closed", "503", "well", "closed", *["well"] * 40]], ids=len)
def test_the_corpus_is_that_of_the_built_in_loop(workplace, target, capsys, kinds):
    with serving(target, None, around=lambda app: Faults(app, kinds)) as (address, _):
        assert ask(address) == 0
    same(examples(target, f"corpus.answers={FILE}"), examples(target))
    lines = [json.loads(line) for line in Path(FILE).read_text().splitlines()]
    assert lines[0]["model"] == "tiny" and lines[0]["sampling"] == {"temperature": 0.0}
    ends = {True: "stop", False: "length"}
    assert all(line["finish_reason"] == ends[line["tokens"][-1] in target.stop_ids] for line in lines[1:])


def test_states_are_read_of_the_engine_s_answers(workplace, target):
    with serving(target, None) as (address, _):
        assert ask(address) == 0
    ours, theirs = (
        arm_corpus(config, target, config.corpus.training_prompts(), "corpus")
        for config in (load_config("arm.yaml", [f"corpus.answers={FILE}"]), load_config("arm.yaml"))
    )
    for a, b in zip(ours, theirs, strict=True):
        assert (a.features.float() - b.features.float()).abs().max() <= 0.02 * b.features.float().abs().max()


def test_a_training_takes_them_and_says_so(workplace, target):
    with serving(target, None) as (address, _):
        assert ask(address) == 0
    for name, more in (("ours", [f"corpus.answers={FILE}"]), ("theirs", [])):
        settings = [part for s in ("corpus.features=online", *more) for part in ("--set", s)]
        assert run_command(train.main, ["arm.yaml", "--run", f"runs/{name}", *settings]) == 0
    ours, theirs = (Run.open(name) for name in ("ours", "theirs"))
    assert ours.manifest.training.settings["corpus"]["answers"] == FILE
    assert ours.manifest.training.data_hash == theirs.manifest.training.data_hash


def test_what_failed_is_counted_and_asked_again(workplace, target, capsys):
    with serving(target, None, around=lambda app: Faults(app, ["400", "well", "well", "well"])) as (address, _):
        assert ask(address, "--concurrency", "1") == 65
        assert "5 of 20 prompts have no answer (5 x HTTP 400)" in capsys.readouterr().err
        before = Path(FILE).read_text()
        partial = examples(target, f"corpus.answers={FILE}")
        assert [reason for _, reason in partial.index["left_out"] if reason == NO_ANSWER] == [NO_ANSWER] * 5
    with serving(target, None) as (address, _):
        assert ask(address) == 0
        assert Path(FILE).read_text().startswith(before)
        assert len(Path(FILE).read_text().splitlines()) == 21
        assert ask(address) == 0  # nothing is left to ask
        assert len(Path(FILE).read_text().splitlines()) == 21
    same(examples(target, f"corpus.answers={FILE}"), examples(target))


def test_a_line_that_was_cut_off_is_asked_again(workplace, target):
    with serving(target, None) as (address, _):
        assert ask(address) == 0
        whole = Path(FILE).read_bytes()
        Path(FILE).write_bytes(whole[:-20])
        assert ask(address) == 0
    assert sorted(Path(FILE).read_bytes().splitlines()) == sorted(whole.splitlines())


def test_a_server_that_stays_away(workplace, target, capsys):
    with serving(target, None, around=lambda app: Faults(app, ["500"])) as (address, _):
        assert ask(address) == 65
    assert "20 x HTTP 500" in capsys.readouterr().err


def test_sampled_answers_are_a_file_of_their_own(workplace, target):
    with serving(target, None) as (address, _):
        assert ask(address, "--temperature", "1", "--out", "sampled.jsonl") == 0
        assert json.loads(Path("sampled.jsonl").read_text().splitlines()[0])["sampling"]["temperature"] == 1.0
        assert ask(address, "--out", "sampled.jsonl") == 65
    with pytest.raises(DataError, match="max_new_tokens"):
        read_answers("sampled.jsonl", asked_of(target, 17))
    with pytest.raises(DataError, match="no answers there"):
        read_answers("none.jsonl", asked_of(target, 16))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"finish_reason": "length"}, "the server returns no token_ids"),
        ({"finish_reason": "length", "token_ids": []}, "no tokens"),
        ({"finish_reason": "length", "token_ids": [5] * 17}, "more tokens than asked for"),
        ({"finish_reason": "stop", "token_ids": [5]}, "without a stop token"),
        ({"finish_reason": "abort", "token_ids": [5]}, "finish reason abort"),
        (None, "malformed answer"),
    ],
)
def test_answers_that_cannot_be_taken(workplace, target, capsys, answer, reason):
    class Odd(Faults):
        async def __call__(self, scope, receive, send):
            if scope["type"] != "http" or scope["path"] != "/v1/completions":
                return await self.app(scope, receive, send)
            body = b"[]" if answer is None else json.dumps({"choices": [answer]}).encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})

    with serving(target, None, around=lambda app: Odd(app, [])) as (address, _):
        assert ask(address) == 65
    assert reason in capsys.readouterr().err
    assert len(Path(FILE).read_text().splitlines()) == 1


def test_token_ids_are_given_where_they_are_asked_for(target, tiny):
    with serving(tiny, None) as (address, _):
        body = {"model": "tiny", "prompt": [60, 61, 62], "max_tokens": 9, "temperature": 0, "ignore_eos": True}
        plain = httpx.post(f"{address}/v1/completions", json=body, timeout=60).json()
        asked = httpx.post(f"{address}/v1/completions", json=body | {"return_token_ids": True}, timeout=60).json()
        assert "token_ids" not in plain["choices"][0]
        expected = tiny.greedy([[60, 61, 62]], 9, stop=False).tokens[0]
        assert asked["choices"][0]["token_ids"] == expected
        assert asked["choices"][0]["prompt_token_ids"] == [60, 61, 62]
        streamed = []
        with httpx.stream(
            "POST", f"{address}/v1/completions", json=body | {"return_token_ids": True, "stream": True}, timeout=60
        ) as events:
            for line in events.iter_lines():
                if line.startswith("data: {"):
                    streamed += json.loads(line[6:])["choices"][0]["token_ids"]
        assert streamed == expected


def test_given_answers_leave_nothing_to_ask(workplace, capsys):
    assert ask("http://127.0.0.1:9", "--set", "corpus.given_answers=true") == 64
    assert (
        run_command(train.main, ["arm.yaml", "--set", "corpus.given_answers=true", "--set", "corpus.answers=x"]) == 65
    )
