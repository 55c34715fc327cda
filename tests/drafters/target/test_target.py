"""The target as a drafter sees it, held against transformers' own outputs for several architectures."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
import transformers as tf
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import DataError
from drafters.target.frozen import Target
from drafters.target.layers import check_layer_ids, default_layer_ids
from tests.tiny import tiny_target, tiny_tokenizer

SMALL = {"vocab_size": 272, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "eos_token_id": 2}
GROUPED = SMALL | {"intermediate_size": 48, "num_key_value_heads": 2, "initializer_range": 0.3}
CONFIGS = {
    "llama": lambda: tf.LlamaConfig(**GROUPED),
    # learned position embeddings, layers called `h`
    "gpt2": lambda: tf.GPT2Config(
        vocab_size=272, n_embd=32, n_layer=4, n_head=4, eos_token_id=2, initializer_range=0.3
    ),
    # parallel attention and feed-forward, head called `embed_out`
    "gpt_neox": lambda: tf.GPTNeoXConfig(**SMALL, intermediate_size=48, initializer_range=0.3),
    # scaled embedding, soft-capped logits, sliding-window layers
    "gemma2": lambda: tf.Gemma2Config(**GROUPED, head_dim=8, query_pre_attn_scalar=8, sliding_window=4),
    # experts are ModuleLists inside the layers
    "mixtral": lambda: tf.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "opt": lambda: tf.OPTConfig(**SMALL, ffn_dim=48, word_embed_proj_dim=32, init_std=0.3),
}


@pytest.fixture(scope="module", params=["qwen3", *CONFIGS])
def target(request: pytest.FixtureRequest) -> Target:
    if request.param == "qwen3":
        return tiny_target()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = tf.AutoModelForCausalLM.from_config(CONFIGS[request.param]())
    return Target(model, tiny_tokenizer(), request.param)


def random_prompts(lengths: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 260, (length,), generator=generator).tolist() for length in lengths]


def step_by_step(target: Target, prompt: list[int], count: int) -> tuple[list[int], torch.Tensor]:
    """Greedy answer and all hidden states by the plainest means: no cache, no batch, the whole text every time."""
    tokens = list(prompt)
    for _ in range(count):
        output = target.model(torch.tensor([tokens]), output_hidden_states=True)
        tokens.append(int(output.logits[0, -1].argmax()))
    return tokens[len(prompt) :], torch.stack(output.hidden_states, dim=2)[0]


class TestLayerIds:
    @pytest.mark.parametrize(
        ("layers", "count", "ids"),
        [
            (36, 5, [1, 9, 17, 25, 33]),  # the published Qwen3-8B checkpoint
            (30, 5, [1, 8, 14, 20, 27]),  # 7.5 and 20.5 both go to the even number
            (36, 1, [18]),
            (30, 2, [1, 27]),
            (6, 3, [1, 2, 3]),
        ],
    )
    def test_published_rule(self, layers: int, count: int, ids: list[int]) -> None:
        assert default_layer_ids(layers, count) == ids

    @given(st.integers(6, 100), st.integers(2, 12))
    def test_default_spreads_from_1_to_third_last(self, layers: int, count: int) -> None:
        if count > layers - 3:  # more ids than layers in that range
            with pytest.raises(DataError, match="duplicates"):
                default_layer_ids(layers, count)
            return
        ids = default_layer_ids(layers, count)
        gaps = {later - earlier for earlier, later in pairwise(ids)}
        assert (len(ids), ids[0], ids[-1]) == (count, 1, layers - 3)
        assert max(gaps) - min(gaps) <= 2

    @pytest.mark.parametrize(
        ("ids", "message"),
        [([1, 5], "after the final norm"), ([6], "outside 0..4"), ([-1, 2], "outside"), ([2, 1], "ascend")],
    )
    def test_refused(self, ids: list[int], message: str) -> None:
        with pytest.raises(DataError, match=message):
            check_layer_ids(ids, 6)

    def test_a_pass_refuses_what_is_no_layer(self) -> None:
        for ids in ([6], [-1, 2], [2, 1]):
            with pytest.raises(DataError):
                tiny_target().forward(torch.tensor([[5]]), layer_ids=ids)


class TestForward:
    def test_features_and_logits_are_transformers_own(self, target: Target) -> None:
        ids = torch.tensor(random_prompts([9, 9]))
        own = target.model(ids, output_hidden_states=True)
        output = target.forward(ids, layer_ids=[0, 2], logits="all")
        assert output.features is not None and output.logits is not None
        assert torch.equal(output.features, torch.stack([own.hidden_states[1], own.hidden_states[3]], dim=2))
        assert torch.equal(output.logits, own.logits)
        final = target.forward(ids, layer_ids=[0, target.final_id]).features
        assert final is not None
        assert torch.equal(final, torch.stack([own.hidden_states[1], own.hidden_states[-1]], dim=2))
        assert output.logits.shape[-1] == target.vocab_size
        last = target.forward(ids, logits=2)
        assert last.features is None and last.logits is not None
        torch.testing.assert_close(last.logits, own.logits[:, -2:])
        chosen = target.forward(ids, logits=torch.tensor([[4], [7]])).logits
        assert chosen is not None
        torch.testing.assert_close(chosen, own.logits[[0, 1], [4, 7]][:, None])

    def test_embedding_is_what_enters_the_first_layer(self, target: Target) -> None:
        ids = torch.tensor(random_prompts([9]))
        expected = target.model(ids, output_hidden_states=True).hidden_states[0]
        if target.id in ("gpt2", "opt"):  # they add position embeddings, which are no part of a token's embedding
            expected = target.model.get_input_embeddings().weight[ids]
        assert torch.equal(target.embed(ids), expected)

    def test_no_logits_means_the_head_is_not_run(self) -> None:
        target, calls = tiny_target(), []
        target.model.lm_head.register_forward_hook(lambda *call: calls.append(call))
        assert target.forward(torch.tensor([[5, 6]]), layer_ids=[1]).logits is None
        assert not calls
        target.forward(torch.tensor([[5, 6]]), logits=1)
        assert len(calls) == 1

    def test_no_hook_is_left_even_after_an_error(self) -> None:
        target = tiny_target()
        with pytest.raises(IndexError):
            target.forward(torch.tensor([[10_000]]), layer_ids=[0, 3])
        target.forward(torch.tensor([[5]]), layer_ids=[0, 3])
        assert not any(module._forward_hooks for module in target.model.modules())

    def test_padding_on_the_left_changes_nothing(self, target: Target) -> None:
        (prompt,) = random_prompts([7])
        alone = target.forward(torch.tensor([prompt]), layer_ids=[1], logits=1)
        padded = target.forward(
            torch.tensor([[0] * 4 + prompt]), layer_ids=[1], logits=1, attention_mask=torch.tensor([[0] * 4 + [1] * 7])
        )
        assert alone.features is not None and padded.features is not None
        torch.testing.assert_close(padded.features[:, 4:], alone.features, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(padded.logits, alone.logits, rtol=1e-4, atol=1e-4)

    def test_a_pass_after_a_cache_is_the_rest_of_the_whole(self, target: Target) -> None:
        (tokens,) = random_prompts([16])
        ids = torch.tensor([tokens])
        whole = target.forward(ids, layer_ids=[2], logits="all")
        cache = target.new_cache()
        target.forward(ids[:, :10], cache=cache)
        rest = target.forward(ids[:, 10:], layer_ids=[2], cache=cache, logits="all")
        assert whole.features is not None and whole.logits is not None and rest.features is not None
        torch.testing.assert_close(rest.logits, whole.logits[:, 10:], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(rest.features, whole.features[:, 10:], rtol=1e-4, atol=1e-4)


class TestGreedy:
    LENGTHS = (11, 3, 7, 1)

    def test_batch_equals_each_prompt_alone_without_cache(self, target: Target) -> None:
        prompts = random_prompts([*self.LENGTHS])
        result = target.greedy(prompts, 12, layer_ids=[0, 2], stop=False)
        assert result.features is not None
        for prompt, tokens, features in zip(prompts, result.tokens, result.features, strict=True):
            expected, hidden = step_by_step(target, prompt, 12)
            assert tokens == expected
            assert features.shape == (len(prompt) + 11, 2, 32)
            torch.testing.assert_close(features, hidden[:, [1, 3]], rtol=1e-4, atol=1e-4)

    def test_a_row_ends_with_its_first_stop_token_and_leaves_the_others_alone(self) -> None:
        target = tiny_target()
        prompts = random_prompts([*self.LENGTHS])
        full = target.greedy(prompts, 20, stop=False).tokens
        target.stop_ids = frozenset({full[0][4], full[2][9]})
        result = target.greedy(prompts, 20, layer_ids=[1], feature_dtype=torch.bfloat16)
        assert result.features is not None
        lengths = []
        for prompt, free, tokens, features in zip(prompts, full, result.tokens, result.features, strict=True):
            ends = [k for k, token in enumerate(free) if token in target.stop_ids]
            assert tokens == (free[: ends[0] + 1] if ends else free)
            assert features.shape == (len(prompt) + len(tokens) - 1, 1, 32)
            assert features.dtype == torch.bfloat16
            lengths.append(len(tokens))
        assert len(set(lengths)) > 1  # rows left the batch at different times

    def test_finished_rows_cost_nothing(self) -> None:
        target = tiny_target()
        prompts = random_prompts([5, 5])
        full = target.greedy(prompts, 8, stop=False).tokens
        target.stop_ids = frozenset({next(token for token in full[0] if token not in full[1])})
        sizes = []
        target.model.model.register_forward_hook(lambda module, args, output: sizes.append(len(output[0])))
        answers = target.greedy(prompts, 8).tokens
        assert sizes == [2] * len(answers[0]) + [1] * (8 - len(answers[0]))

    def test_answers_of_the_tiny_target_vary(self) -> None:
        for tokens in tiny_target().greedy(random_prompts([*self.LENGTHS]), 40, stop=False).tokens:
            assert len(set(tokens)) >= 10

    def test_without_layers_no_features(self) -> None:
        assert tiny_target().greedy([[5]], 2).features is None

    @pytest.mark.parametrize(("prompts", "limit"), [([], 3), ([[5], []], 3), ([[5]], 0)])
    def test_senseless_calls(self, prompts: list[list[int]], limit: int) -> None:
        with pytest.raises(ValueError, match="requires"):
            tiny_target().greedy(prompts, limit)


class TestChat:
    def test_ends_where_the_answer_starts(self) -> None:
        target = tiny_target()
        ids = target.encode_chat([{"role": "user", "content": "2+3?"}])
        text = "<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n"
        assert target.tokenizer.decode(ids) == text
        assert (ids[0], ids[-1], len(ids)) == (1, ids[5], 1 + 5 + 4 + 1 + 1 + 1 + 10)
        assert target.decode(ids) == "user\n2+3?\nassistant\n"

    def test_thinking_is_off(self) -> None:
        target = tiny_target()
        target.tokenizer.chat_template = "{{ 'fast' if enable_thinking is false else 'slow' }}"
        assert target.decode(target.encode_chat([{"role": "user", "content": ""}])) == "fast"

    def test_no_template(self) -> None:
        target = tiny_target()
        target.tokenizer.chat_template = None
        with pytest.raises(DataError, match="no chat template"):
            target.encode_chat([{"role": "user", "content": "hi"}])
        assert target.info().chat_template_sha256 is None

    def test_template_that_refuses_a_role(self) -> None:
        target = tiny_target()
        target.tokenizer.chat_template = "{{ raise_exception('no system role here') }}"
        with pytest.raises(DataError, match=r"system, user .*no system role here"):
            target.encode_chat([{"role": "system", "content": ""}, {"role": "user", "content": ""}])


class TestParts:
    def test_stop_ids_come_from_everywhere(self) -> None:
        model = copy.deepcopy(tiny_target().model)
        model.generation_config.eos_token_id = [7, 9]
        model.config.eos_token_id = 11
        target = Target(model, tiny_tokenizer(), "t")
        assert target.stop_ids == {2, 7, 9, 11}
        assert target.pad_id == 0

    def test_pad_falls_back_to_a_stop_token(self) -> None:
        tokenizer = tiny_tokenizer()
        tokenizer.pad_token = None
        assert Target(tiny_target().model, tokenizer, "t").pad_id == 2

    def test_head_weight_makes_the_logits(self) -> None:
        target = tiny_target()
        ids = torch.tensor(random_prompts([5]))
        final = target.model(ids, output_hidden_states=True).hidden_states[-1]
        assert target.head_weight.shape == (target.vocab_size, target.hidden_size)
        torch.testing.assert_close(final @ target.head_weight.T, target.forward(ids, logits="all").logits)

    def test_head_with_a_bias_is_refused_when_sliced(self) -> None:
        model = tf.AutoModelForCausalLM.from_config(tf.PhiConfig(**SMALL, intermediate_size=48))
        with pytest.raises(DataError, match="bias"):
            _ = Target(model, tiny_tokenizer(), "phi").head_weight

    def test_missing_parts_are_named(self) -> None:
        with pytest.raises(DataError, match="Qwen3Model shows no output head"):
            Target(tiny_target().model.model, tiny_tokenizer(), "headless")
        model = copy.deepcopy(tiny_target().model)
        model.config.num_hidden_layers = 9  # no list of nine modules in there
        with pytest.raises(DataError, match="shows no decoder layers"):
            Target(model, tiny_tokenizer(), "odd")

    def test_parts_of_different_widths(self) -> None:
        config = tf.OPTConfig(**SMALL, ffn_dim=48, word_embed_proj_dim=16)  # projected in and out, as OPT-350M is
        with pytest.raises(DataError, match="widths 16, 32, 16"):
            Target(tf.AutoModelForCausalLM.from_config(config), tiny_tokenizer(), "opt")

    def test_nothing_is_trainable(self, target: Target) -> None:
        assert not target.model.training
        assert not any(parameter.requires_grad for parameter in target.model.parameters())


class TestLoad:
    def test_folder_gives_the_same_target(self, tmp_path) -> None:
        original = tiny_target(seed=3)
        original.model.to(torch.bfloat16).save_pretrained(tmp_path / "small one")
        original.tokenizer.save_pretrained(tmp_path / "small one")
        target = Target.load(str(tmp_path / "small one"))
        info = target.info()
        assert (info.id, info.architecture, info.num_layers) == ("small one", "Qwen3ForCausalLM", 6)
        assert (info.hidden_size, info.vocab_size, info.note) == (32, 272, None)
        assert target.dtype == torch.float32
        assert info.sha256 == original.info().sha256  # bfloat16 values, loaded as float32
        assert info.chat_template_sha256 == original.info().chat_template_sha256
        (prompt,) = random_prompts([6])
        assert target.greedy([prompt], 5).tokens == Target.load(str(tmp_path / "small one")).greedy([prompt], 5).tokens

    def test_sha256_sees_every_weight(self) -> None:
        first, same, other = tiny_target(), tiny_target(), tiny_target()
        with torch.no_grad():
            other.model.model.layers[2].self_attn.k_norm.weight[3] += 1e-6
        assert first.info().sha256 == same.info().sha256 != other.info().sha256

    def test_unknown_reference(self, tmp_path) -> None:
        for reference in ("no-such/model", str(tmp_path)):
            with pytest.raises(DataError, match="cannot be loaded") as caught:
                Target.load(reference)
            assert "\n" not in str(caught.value)
