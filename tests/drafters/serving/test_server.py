"""The server against plain decoding, the API's own client, its limits, and clients that misbehave."""

import asyncio
import json
import random
import threading
import time

import httpx
import pytest

from drafters.decoding.decode import decode
from drafters.decoding.proposers import LookupProposer
from drafters.serving.app import Limits
from drafters.serving.client import Ask, put_load
from drafters.serving.counters import scrape
from drafters.serving.text import TextStream
from tests.drafters.serving.conftest import serving
from tests.drafters.serving.fuzz import fuzz

PROMPTS = [[10 + i, 20, 30 + 2 * i, 20, 30 + 2 * i] for i in range(10)]
NONE = frozenset()


def post(address, path="/v1/completions", **body):
    return httpx.post(f"{address}{path}", json={"model": "tiny", **body}, timeout=60)


def events(address, **body):
    with httpx.stream(
        "POST", f"{address}/v1/completions", json={"model": "tiny", "stream": True, **body}, timeout=60
    ) as answer:
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.fixture(scope="module")
def plain(tiny):
    return [s.tokens for s in decode(tiny, None, PROMPTS, max_new_tokens=24, stop_ids=NONE).sequences]


def test_a_load_gets_the_targets_own_output(tiny, address, plain):
    # 10 requests, 4 places: rows leave and join while others go on
    ask = Ask("tiny", 24)
    load = put_load(address, PROMPTS, ask, 6)
    assert [a.status for a in load.answers] == ["ok"] * 10
    assert [a.output_tokens for a in load.answers] == [24] * 10
    for prompt, tokens in zip(PROMPTS, plain, strict=True):
        found = post(address, prompt=prompt, max_tokens=24, temperature=0, ignore_eos=True).json()
        assert found["choices"][0]["text"] == tiny.decode(tokens)
        assert found["usage"] == {"prompt_tokens": 5, "completion_tokens": 24, "total_tokens": 29}


def test_counters_are_those_of_the_decoder(tiny, address):
    before = scrape(address)
    put_load(address, PROMPTS, Ask("tiny", 24), 4)
    rise = scrape(address).since(before)
    found = decode(tiny, LookupProposer(4), PROMPTS, max_new_tokens=24, stop_ids=NONE)
    steps = [step for s in found.sequences for step in s.steps if step.drafted]
    assert rise.drafts == len(steps) > 0
    assert rise.draft_tokens == sum(step.drafted for step in steps)
    assert rise.accepted == sum(step.accepted for step in steps) == sum(rise.accepted_at)


def test_streamed_text_is_the_whole_text(address):
    asked = {"prompt": PROMPTS[0], "max_tokens": 30, "temperature": 0, "ignore_eos": True}
    whole = post(address, **asked).json()["choices"][0]
    pieces = events(address, **asked, stream_options={"include_usage": True})
    assert "".join(p["choices"][0]["text"] for p in pieces[:-1]) == whole["text"]
    assert pieces[-2]["choices"][0]["finish_reason"] == whole["finish_reason"] == "length"
    assert pieces[-1]["choices"] == [] and pieces[-1]["usage"]["completion_tokens"] == 30


def test_a_stop_string_ends_the_text_before_it(address):
    asked = {"prompt": PROMPTS[1], "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    text = post(address, **asked).json()["choices"][0]["text"]
    stop = text[5:8]
    expected = text[: text.index(stop)]
    assert post(address, **asked, stop=stop).json()["choices"][0] | {"logprobs": None} == {
        "index": 0, "text": expected, "logprobs": None, "finish_reason": "stop",
    }  # fmt: skip
    assert "".join(p["choices"][0]["text"] for p in events(address, **asked, stop=[stop])) == expected


def test_a_seed_repeats_a_sampled_answer(address):
    asked = {"prompt": PROMPTS[2], "max_tokens": 20, "temperature": 1.5, "seed": 7}
    texts = [post(address, **asked).json()["choices"][0]["text"] for _ in range(2)]
    other = post(address, **asked | {"seed": 8}).json()["choices"][0]["text"]
    assert texts[0] == texts[1] != other


def test_stop_tokens_end_an_answer_unless_ignored(tiny):
    stop = decode(tiny, None, PROMPTS[:1], max_new_tokens=9, stop_ids=NONE).sequences[0].tokens[4]
    stop_ids, tiny.stop_ids = tiny.stop_ids, frozenset({stop})
    try:
        with serving(tiny, None) as (address, _):
            asked = {"prompt": PROMPTS[0], "max_tokens": 9, "temperature": 0}
            ended, whole = post(address, **asked).json(), post(address, **asked, ignore_eos=True).json()
    finally:
        tiny.stop_ids = stop_ids
    assert ended["choices"][0]["finish_reason"] == "stop" and ended["usage"]["completion_tokens"] <= 5
    assert whole["choices"][0]["finish_reason"] == "length" and whole["usage"]["completion_tokens"] == 9


def test_the_official_client(tiny, address):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    assert client.models.list().data[0].id == "tiny"
    messages = [{"role": "user", "content": "2 + 3?"}]
    asked = {"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**asked, extra_body={"ignore_eos": True})
    prompt = tiny.encode_chat(messages)
    expected = decode(tiny, None, [prompt], max_new_tokens=12, stop_ids=NONE).sequences[0].tokens
    assert whole.choices[0].message.content == tiny.decode(expected)
    assert whole.usage.prompt_tokens == len(prompt)
    stream = client.chat.completions.create(**asked, stream=True, extra_body={"ignore_eos": True})
    pieces = [chunk.choices[0].delta for chunk in stream]
    assert pieces[0].role == "assistant"
    assert "".join(piece.content or "" for piece in pieces) == whole.choices[0].message.content
    completion = client.completions.create(model="tiny", prompt="abc", max_tokens=3, temperature=0)
    assert completion.usage.completion_tokens <= 3
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="abc")
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tiny", prompt="abc", n=2)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"model": "tiny"}', 400),
        (b'{"model": "tiny", "prompt": NaN}', 400),
        (b'{"model": "tiny", "prompt": ' + b"[" * 20000, 400),
        (b'{"model": "tiny", "prompt": [[1], [2]]}', 400),
        (b'{"model": "tiny", "prompt": []}', 400),
        (b'{"model": "tiny", "prompt": ""}', 400),
        (b'{"model": "tiny", "prompt": [-1]}', 400),
        (b'{"model": "tiny", "prompt": [99999]}', 400),
        (b'{"model": "tiny", "prompt": "\\ud800"}', 400),
        (b'{"model": "tiny", "prompt": "a", "max_tokens": "3"}', 400),
        (b'{"model": "tiny", "prompt": "a", "max_tokens": 0}', 400),
        (b'{"model": "tiny", "prompt": "a", "max_tokens": 100000}', 400),
        (b'{"model": "tiny", "prompt": "a", "temperature": -1}', 400),
        (b'{"model": "tiny", "prompt": "a", "temperature": 1e999}', 400),
        (b'{"model": "tiny", "prompt": "a", "logprobs": 3}', 400),
        (b'{"model": "tiny", "prompt": "a", "n": true}', 400),
        (b'{"model": "tiny", "prompt": "a", "stop": ["a", "b", "c", "d", "e"]}', 400),
        (b'{"model": "tiny", "prompt": "' + b"a" * (1 << 17) + b'"}', 413),
        (b'{"model": "no", "prompt": "a"}', 404),
        (b'{"prompt": "a"}', 404),
        (b"\xff\xfe", 400),
    ],
)
def test_refusals_have_the_apis_format(address, body, status):
    answer = httpx.post(f"{address}/v1/completions", content=body, timeout=60)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["code"] == status and error["message"] and error["type"] and "param" in error


def test_paths_that_are_not_there(address):
    for method, path, status in (("GET", "/v1/completions", 405), ("GET", "/nothing", 404), ("POST", "/health", 405)):
        answer = httpx.request(method, f"{address}{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)


def test_too_many_requests_are_turned_away(tiny):
    with serving(tiny, None, places=1, waiting=1, limits=Limits(length=4000)) as (address, _engine):
        asked = {"model": "tiny", "prompt": [5, 6], "max_tokens": 300, "ignore_eos": True}

        async def all_at_once():
            async with httpx.AsyncClient(timeout=60) as client:
                return await asyncio.gather(*(client.post(f"{address}/v1/completions", json=asked) for _ in range(8)))

        statuses = sorted(answer.status_code for answer in asyncio.run(all_at_once()))
        assert set(statuses) == {200, 429}
        assert httpx.get(f"{address}/health").status_code == 200


def test_a_reader_that_leaves_frees_its_place(tiny):
    with serving(tiny, None, places=1, limits=Limits(length=4000)) as (address, engine):
        asked = {"model": "tiny", "prompt": [5, 6], "max_tokens": 3900, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{address}/v1/completions", json=asked, timeout=60) as answer:
            next(answer.iter_lines())
        # without streaming too
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{address}/v1/completions", json={**asked, "stream": False}, timeout=0.3)
        assert post(address, prompt=[5], max_tokens=2).status_code == 200
        deadline = time.monotonic() + 10
        while engine._loop.rows and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not engine._loop.rows and not engine._tickets


def test_a_failed_engine_is_seen(tiny, monkeypatch):
    with serving(tiny, None) as (address, engine):
        monkeypatch.setattr(engine._loop, "admit", lambda requests: 1 / 0)
        answer = post(address, prompt=[5], max_tokens=2)
        assert answer.status_code == 500 and "ZeroDivisionError" in answer.json()["error"]["message"]
        assert httpx.get(f"{address}/health").status_code == 503
        assert post(address, prompt=[5], max_tokens=2).status_code == 503


def test_metrics_have_the_names_of_vllm(address):
    post(address, prompt=PROMPTS[0], max_tokens=12, temperature=0)
    page = httpx.get(f"{address}/metrics").text
    counters = ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
    names = [f"spec_decode_num_{counter}_total" for counter in counters]
    for name in (*names, "generation_tokens_total", "prompt_tokens_total", "request_success_total"):
        assert f"vllm:{name}{{" in page


@pytest.mark.parametrize("text", ["plain words", "naïve café – 日本語 🙂🙂 end", "\n\n", ""])
@pytest.mark.parametrize("held", [0, 3])
def test_pieces_of_text_add_up(tiny, text, held):
    tokens = tiny.tokenizer.encode(text)
    draws = random.Random(len(text) + held)
    stream, pieces, at = TextStream(tiny.decode, held), [], 0
    while at < len(tokens):
        count = draws.randint(1, 4)
        pieces.append(stream.push(tokens[at : at + count]))
        at += count
    pieces.append(stream.finish())
    assert "".join(pieces) == tiny.decode(tokens)
    assert not any("\ufffd" in piece for piece in pieces)


def test_fuzz_leaves_the_server_healthy(served):
    address, engine = served
    statuses = fuzz(address, 300, seed=0)
    assert {200, 400} <= set(statuses) <= {200, 400, 404, 405, 413}
    assert httpx.get(f"{address}/health").status_code == 200
    deadline = time.monotonic() + 10
    while engine._loop.rows and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not engine._loop.rows
    assert post(address, prompt=PROMPTS[0], max_tokens=4, temperature=0).status_code == 200
    assert threading.active_count() < 60
