"""Corpora: what is in them, that nothing but the prompts decides it, and that a kill changes nothing."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter, namedtuple
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import DataError
from drafters.cache import locked
from drafters.corpus.build import Corpus, build_corpus, estimate_bytes, plan_batches
from drafters.prompts.files import prompts_of_rows
from drafters.prompts.identity import Prompt, make_prompt, messages
from drafters.target.frozen import Target
from tests.tiny import CHAT_TEMPLATE, tiny_target

LAYERS = (0, 2, 4)
QUESTIONS = [f"What is {n} times {n * n * 37}{'?' * (1 + 5 * n % 7)}" for n in range(11)]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def target() -> Target:
    return tiny_target()


def prompts() -> list[Prompt]:
    return [make_prompt([text], "sums" if i % 2 else "products") for i, text in enumerate(QUESTIONS)]


def build(target: Target, **changes) -> Corpus:
    settings = {"prompts": prompts(), "layer_ids": LAYERS, "max_new_tokens": 9, "batch_size": 3} | changes
    return build_corpus(target, **settings)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestContent:
    def test_examples_are_the_targets_answers_with_its_hidden_states(self, target: Target) -> None:
        corpus = build(target)
        assert corpus.example_ids == [prompt.prompt_id for prompt in prompts()]
        assert len(corpus) == 11 and corpus.layer_ids == LAYERS
        for prompt, example in zip(prompts(), corpus, strict=True):
            asked = target.encode_chat(messages(prompt))
            answer = target.greedy([asked], 9).tokens[0]
            assert example.tokens.tolist() == asked + answer
            assert example.prompt_length == len(asked)
            assert example.supervised.tolist() == [False] * len(asked) + [True] * len(answer)
            assert (example.dataset, example.cluster_id) == (prompt.dataset, prompt.cluster_id)
            hidden = target.model(example.tokens[None], output_hidden_states=True).hidden_states
            expected = torch.stack([hidden[layer + 1][0, :-1] for layer in LAYERS], dim=1)
            assert example.features.dtype == torch.bfloat16
            torch.testing.assert_close(example.features.float(), expected, rtol=2**-8, atol=1e-4)

    def test_random_access(self, target: Target) -> None:
        corpus = build(target)
        again = Corpus(corpus.folder)
        for i in (7, 0, 10, 7):
            assert torch.equal(again[i].features, list(corpus)[i].features)
        with pytest.raises(IndexError):
            again[11]

    def test_token_counts_are_of_answers_alone(self, target: Target) -> None:
        corpus = build(target)
        expected = Counter(token for e in corpus for token in e.tokens[e.prompt_length :].tolist())
        counts = corpus.token_counts()
        assert len(counts) == target.vocab_size
        assert {token: n for token, n in enumerate(counts.tolist()) if n} == expected

    def test_answers_without_an_anchor_are_named_and_left_out(self, target: Target) -> None:
        firsts = [e.tokens[e.prompt_length].item() for e in build(target)]
        ending = tiny_target()
        ending.stop_ids = frozenset({firsts[4]})  # answers that start with it are one token long
        corpus = build(ending)
        short = [prompt.prompt_id for prompt, first in zip(prompts(), firsts, strict=True) if first == firsts[4]]
        assert corpus.index["left_out"] == [[id, "answer of fewer than two tokens"] for id in short]
        assert corpus.example_ids == [prompt.prompt_id for prompt in prompts() if prompt.prompt_id not in short]
        ending.stop_ids = frozenset(firsts)
        with pytest.raises(DataError, match=r"no example is left \(11 x answer of fewer than two tokens\)"):
            build(ending)

    def test_maximal_length(self, target: Target) -> None:
        lengths = sorted(len(target.encode_chat(messages(prompt))) for prompt in prompts())
        limit = lengths[-1] + 1  # the longest prompts have room for one token, which is no answer
        corpus = build(target, max_length=limit)
        assert len(corpus.index["left_out"]) == lengths.count(lengths[-1])
        assert {len(e.tokens) for e in corpus} == {min(length + 9, limit) for length in lengths[: len(corpus)]}
        assert all(len(e.features) == len(e.tokens) - 1 for e in corpus)

    def test_float16_only_if_it_holds_the_largest_value(self, target: Target) -> None:
        assert build(target, dtype="float16")[0].features.dtype == torch.float16
        massive = tiny_target()
        massive.model.model.layers[3].mlp.down_proj.weight[7] *= 1e6
        with pytest.raises(DataError, match=r"float16.*use bfloat16"):
            build(massive, dtype="float16")
        assert build(massive)[0].features.abs().max() > 65504


class TestGivenAnswers:
    CHAT = ("First?", "Second one?", "And the third?"), ("Yes.", "No no.", "Maybe")

    def test_every_answer_is_supervised_with_its_stop_token(self, target: Target) -> None:
        chat = make_prompt(self.CHAT[0], "chat", answers=self.CHAT[1])
        plain = make_prompt(["Why?"], "chat", answers=["So."])
        corpus = build(target, prompts=[chat, plain], given_answers=True)
        example = corpus[0]
        text = "".join(
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
            for question, answer in zip(*self.CHAT, strict=True)
        )
        assert target.tokenizer.decode(example.tokens) == text.removesuffix("\n")
        supervised = target.tokenizer.decode(example.tokens[example.supervised])
        assert supervised == "Yes.<|im_end|>No no.<|im_end|>Maybe<|im_end|>"
        assert example.supervised.tolist().index(True) == example.prompt_length
        for example in corpus:  # rows of different lengths in one batch
            hidden = target.model(example.tokens[None], output_hidden_states=True).hidden_states
            expected = torch.stack([hidden[layer + 1][0, :-1] for layer in LAYERS], dim=1)
            torch.testing.assert_close(example.features.float(), expected, rtol=2**-8, atol=1e-4)

    def test_history_that_the_template_rewrites_is_not_supervised(self) -> None:
        target = tiny_target()
        # an empty thought before every answer to be given, none in the history
        target.tokenizer.chat_template = target.tokenizer.chat_template.replace("assistant\n{", "assistant\n()\n{")
        example = build(
            target, prompts=[make_prompt(*self.CHAT[:1], "chat", answers=self.CHAT[1])], given_answers=True
        )[0]
        assert target.tokenizer.decode(example.tokens[example.supervised]) == "Maybe<|im_end|>"

    def test_prompts_without_answers(self, target: Target) -> None:
        given = make_prompt(["Why?"], "chat", answers=["Because of it."])
        without = make_prompt(["How?"], "chat")
        corpus = build(target, prompts=[without, given], given_answers=True)
        assert corpus.example_ids == [given.prompt_id]
        assert corpus.index["left_out"] == [[without.prompt_id, "no given answer"]]

    def test_other_answers_are_another_corpus(self, target: Target) -> None:
        folders = {
            build(target, prompts=[make_prompt(["Why?"], "chat", answers=[answer])], given_answers=True).folder
            for answer in ("Because.", "Therefore.")
        }
        assert len(folders) == 2


SWITCH = "{% if add_generation_prompt and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
OPENED = "{% if add_generation_prompt %}<think>\n{% endif %}"  # as of models that always think
EMPTY = "<think>\n\n</think>\n\n"
WHY = "<think>\nwhy\n</think>\n\n"


class TestAnswersOfEngines:
    def thinking_target(self, ending: str = SWITCH, thinking: bool = False) -> Target:
        plain = tiny_target()
        plain.tokenizer.chat_template = CHAT_TEMPLATE + ending
        return Target(plain.model, plain.tokenizer, "tiny", thinking=thinking)

    def answered(self, target: Target, row: dict, **message) -> tuple[str, str, Corpus]:
        chat = [{"role": "user", "content": "hi"}, {"role": "assistant", **message}]
        prompts = prompts_of_rows([("oak:1", row | {"messages": chat})], "oak", "oak", {})
        corpus = build(target, prompts=prompts, layer_ids=(), given_answers=True)
        example = corpus[0]
        text = target.tokenizer.decode(example.tokens)
        learnt = target.tokenizer.decode(example.tokens[example.supervised])
        start = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        assert text.startswith(start)
        return text.removeprefix(start), learnt, corpus

    @pytest.mark.parametrize(
        ("message", "after_header", "learnt"),
        [
            ({"content": "yes"}, EMPTY + "yes<|im_end|>", "yes<|im_end|>"),
            ({"content": "yes<|im_end|>"}, EMPTY + "yes<|im_end|>", "yes<|im_end|>"),
            ({"content": "yes<|im_end|>\nno"}, EMPTY + "yes<|im_end|>", "yes<|im_end|>"),
            ({"content": "First we", "finish_reason": "length"}, EMPTY + "First we", "First we"),
            ({"content": WHY + "yes"}, WHY + "yes<|im_end|>", WHY + "yes<|im_end|>"),
            ({"content": EMPTY + "yes"}, EMPTY + "yes<|im_end|>", "yes<|im_end|>"),
            ({"content": "yes", "reasoning_content": "why"}, WHY + "yes<|im_end|>", WHY + "yes<|im_end|>"),
            (
                {"content": None, "reasoning": "why not", "finish_reason": "length"},
                "<think>\nwhy not",
                "<think>\nwhy not",
            ),
        ],
    )
    def test_what_the_template_writes_too_is_placed_once(self, message: dict, after_header: str, learnt: str) -> None:
        found = self.answered(self.thinking_target(), {}, **message)
        assert found[:2] == (after_header, learnt)

    @pytest.mark.parametrize("reason", ["length", "max_tokens"])
    def test_a_row_may_say_that_its_answer_was_cut(self, reason: str) -> None:
        assert self.answered(self.thinking_target(), {"finish_reason": reason}, content="so we")[1] == "so we"
        assert self.answered(self.thinking_target(), {"finish_reason": "stop"}, content="so we")[1] == "so we<|im_end|>"

    def test_a_thought_that_the_template_opens_is_placed_once(self) -> None:
        target = self.thinking_target(OPENED)
        assert self.answered(target, {}, content=WHY + "yes")[0] == WHY + "yes<|im_end|>"
        assert self.answered(target, {}, content="why\n</think>\n\nyes")[0] == WHY + "yes<|im_end|>"
        with pytest.raises(DataError, match="1 x an answer without a thought"):
            self.answered(target, {}, content="yes")

    def test_a_thought_in_a_field_of_its_own_needs_a_place_in_the_template(self) -> None:
        with pytest.raises(DataError, match="1 x a thought in a separate field"):
            self.answered(self.thinking_target(""), {}, content="yes", reasoning_content="why")

    def test_thoughts_that_are_not_as_the_target_is_set_are_noted(self) -> None:
        off, on = self.thinking_target(), self.thinking_target(thinking=True)
        assert "hold a thought, though thinking is off" in self.answered(off, {}, content=WHY + "yes")[2].notes[0]
        assert self.answered(on, {}, content=WHY + "yes")[2].notes == []
        assert "hold no thought, though thinking is on" in self.answered(on, {}, content="yes")[2].notes[0]
        assert self.answered(off, {}, content="yes")[2].notes == []

    def test_thinking_is_a_setting_that_decides_the_corpus(self) -> None:
        off, on = self.thinking_target(), self.thinking_target(thinking=True)
        chat = messages(prompts()[0])
        assert off.encode_chat(chat)[: len(on.encode_chat(chat))] == on.encode_chat(chat) != off.encode_chat(chat)
        assert build(off).folder != build(on).folder
        with pytest.raises(DataError, match="no enable_thinking switch"):
            self.thinking_target("", thinking=True)

    def test_a_cut_answer_is_another_corpus(self) -> None:
        target = self.thinking_target()
        cut = self.answered(target, {"finish_reason": "length"}, content="so we")[2]
        assert cut.folder != self.answered(target, {}, content="so we")[2].folder


class TestIdentity:
    def test_found_again_without_running_the_target(self, target: Target, monkeypatch) -> None:
        corpus = build(target)
        assert corpus.build_seconds > 0
        monkeypatch.setattr(Target, "forward", None)
        again = build(target)
        assert (again.folder, again.sha256, again.build_seconds) == (corpus.folder, corpus.sha256, 0)

    def test_what_decides_the_content_decides_the_folder(self, target: Target) -> None:
        reordered = [*prompts()[1:], prompts()[0]]
        variants = [
            {},
            {"prompts": reordered},
            {"prompts": prompts()[:-1]},
            {"layer_ids": (0, 2, 3)},
            {"max_new_tokens": 8},
            {"max_length": 3000},
            {"batch_size": 4},
            {"dtype": "float16"},
        ]
        corpora = [build(target, **variant) for variant in variants] + [build(tiny_target(seed=1))]
        assert len({corpus.folder for corpus in corpora}) == len({corpus.sha256 for corpus in corpora}) == 9

    def test_folder_with_another_corpus(self, target: Target, tmp_path: Path) -> None:
        corpus = build(target, folder=tmp_path / "mine")
        assert corpus.folder == tmp_path / "mine"
        with pytest.raises(DataError, match=r"other settings \(max_new_tokens\)"):
            build(target, folder=tmp_path / "mine", max_new_tokens=8)

    def test_nothing_to_answer(self, target: Target) -> None:
        with pytest.raises(DataError, match="no prompts"):
            build(target, prompts=[])
        with pytest.raises(DataError, match="2 times"):
            build(target, prompts=[*prompts(), prompts()[3]])


class TestInterrupted:
    CHILD = """
import os, sys, time
from drafters.corpus import store as corpus_store
from tests.drafters.corpus.test_corpus import build
from tests.tiny import CHAT_TEMPLATE, tiny_target

def stop():
    print("now", flush=True)
    time.sleep(60)

moment, after = sys.argv[1], int(sys.argv[2])
if moment == "saving":  # a file is written, its name not yet given
    calls = []
    corpus_store.os.fsync = lambda file: (calls.append(file), len(calls) > after and stop())
build(tiny_target(), progress=lambda done, total, seconds: moment == "between" and done > after and stop())
"""

    def kill(self, moment: str, after: int) -> None:
        root = Path(__file__).parents[3]
        child = subprocess.Popen(
            [sys.executable, "-c", self.CHILD, moment, str(after)], cwd=root, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "now\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()

    @pytest.mark.slow
    def test_killed_twice_and_finished_is_bit_equal(self, target: Target, tmp_path: Path) -> None:
        whole = build(target, folder=tmp_path / "whole")
        self.kill("saving", 2)  # settings, shard 0, and in the middle of shard 1
        (folder,) = (tmp_path / "cache" / "corpora").iterdir()
        assert (folder / ".shard-00001.safetensors.tmp").exists()
        assert [path.name for path in folder.glob("shard-*")] == ["shard-00000.safetensors"]
        first = (folder / "shard-00000.safetensors").stat().st_mtime_ns
        with pytest.raises(DataError, match="not finished"):
            Corpus(folder)
        self.kill("between", 6)
        assert len(list(folder.glob("shard-*"))) == 3
        corpus = build(target)
        assert corpus.folder == folder
        assert (folder / "shard-00000.safetensors").stat().st_mtime_ns == first
        assert contents(folder) == contents(whole.folder)
        assert corpus.sha256 == whole.sha256

    def test_lost_shards_are_made_again(self, target: Target) -> None:
        corpus = build(target)
        before = contents(corpus.folder)
        for name in ("index.json", "shard-00003.safetensors", "shard-00001.safetensors"):
            (corpus.folder / name).unlink()
        calls: list[tuple[int, int]] = []
        build(target, progress=lambda done, total, seconds: calls.append((done, total)))
        assert contents(corpus.folder) == before
        assert calls == [(3, 11), (6, 11), (9, 11), (11, 11)]

    def test_second_builder_waits(self, target: Target, tmp_path: Path) -> None:
        folder = tmp_path / "shared"
        second = threading.Thread(target=build, args=(target,), kwargs={"folder": folder})
        with locked(folder):
            second.start()
            second.join(0.3)
            assert second.is_alive() and not list(folder.glob("*.json"))
        second.join()
        assert len(Corpus(folder)) == 11


class TestDamage:
    def test_truncated_or_missing_shard(self, target: Target) -> None:
        corpus = build(target)
        shard = corpus.folder / "shard-00002.safetensors"
        shard.write_bytes(shard.read_bytes()[:-1])
        with pytest.raises(DataError, match=r"shard-00002.*cut off"):
            Corpus(corpus.folder)
        shard.unlink()
        with pytest.raises(DataError, match=r"shard-00002.*missing"):
            build(target)

    @pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ('{"format": 99}', "format 99")])
    def test_index(self, target: Target, text: str, message: str) -> None:
        corpus = build(target)
        (corpus.folder / "index.json").write_text(text)
        with pytest.raises(DataError, match=message):
            Corpus(corpus.folder)


class TestSize:
    def test_estimate(self, target: Target) -> None:
        corpus = build(target)
        tokens = sum(len(e.tokens) for e in corpus)
        size = sum(path.stat().st_size for path in corpus.folder.glob("shard-*"))
        headers = 4 * 2000  # descriptions of the examples
        assert estimate_bytes(tokens, 3, 32) - 11 * 192 <= size <= estimate_bytes(tokens, 3, 32) + headers

    def test_no_room(self, target: Target, monkeypatch) -> None:
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 50_000))
        with pytest.raises(DataError, match=r"up to 0\.0 GB are needed"):
            build(target)
        build(target, prompts=prompts()[:2])  # 2 x 60 tokens x 197 bytes


class TestBatches:
    @given(st.lists(st.integers(1, 30), max_size=200), st.integers(1, 5))
    def test_every_prompt_once_in_batches_of_equal_size(self, lengths: list[int], size: int) -> None:
        batches = plan_batches(lengths, size)
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        assert all(len(batch) == size for batch in batches[:-1])

    def test_sorted_by_length_within_windows(self) -> None:
        lengths = [5, 3, 5, 1] + [9] * 28 + [2, 1]  # a window of 16 batches of 2, and the next one
        batches = plan_batches(lengths, 2)
        assert batches[:3] == [[3, 1], [0, 2], [4, 5]]
        assert batches[-1] == [33, 32]

    @given(st.lists(st.integers(1, 30), min_size=33, max_size=80))
    def test_later_prompts_leave_full_windows_alone(self, lengths: list[int]) -> None:
        assert plan_batches(lengths, 2)[:16] == plan_batches(lengths[:32], 2)


def test_index_is_free_of_times_and_paths(target: Target, tmp_path: Path) -> None:
    index = json.loads((build(target, folder=tmp_path / "a").folder / "index.json").read_text())
    assert set(index) == {"format", "settings", "vocab_size", "shards", "left_out", "examples"}
    assert str(tmp_path) not in json.dumps(index)
