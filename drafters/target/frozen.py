"""The frozen target: any transformers causal language model, seen the way a drafter sees it.

A drafter needs three things of its target: hidden states after a few chosen layers (the context features),
the input embedding and output head that it shares, and greedy tokens to agree with. Every place that
depends on how transformers spells things (hooks, cache, logits) is in this module.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from analysis.errors import DataError
from analysis.runlog import manifest
from drafters.progress import say
from drafters.target.anatomy import (
    captured_outputs,
    find_pad_id,
    find_parts,
    find_stop_ids,
    no_progress_bars,
    weights_sha256,
)
from drafters.target.layers import check_layer_ids

if TYPE_CHECKING:  # importing transformers' model classes takes seconds
    from transformers import Cache, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class TargetOutput:
    """One pass of the target."""

    features: Tensor | None  # [batch, length, T, H]: hidden states after the chosen layers, in their order
    logits: Tensor | None  # [batch, kept, vocab]


@dataclass(frozen=True)
class GreedyOutput:
    """Greedy answers of a batch, one entry per prompt."""

    tokens: list[list[int]]  # the answer, up to and with its first stop token
    features: list[Tensor] | None  # [prompt + answer - 1, T, H]: all tokens but the last, which was not run


class Target:
    """A frozen causal language model and its tokenizer.

    Raises DataError if the model lacks what a drafter needs: input embeddings, a list of decoder layers, and
    an output head, all of one width.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        id: str,
        *,
        note: str | None = None,
        sha256: str | None = None,
        thinking: bool = False,
    ):
        self.model: Any = model.eval().requires_grad_(False)
        self.tokenizer: Any = tokenizer
        self.id = id
        self.note = note
        self.thinking = thinking
        if thinking and "enable_thinking" not in (self.chat_template or ""):
            raise DataError(f"target '{id}': thinking is on, but its chat template has no enable_thinking switch")
        self._sha256 = sha256
        self._embedding, self._layers, self._head = find_parts(model, id)
        self.num_layers = len(self._layers)
        # rows of the head: often more than the tokenizer has ids
        self.vocab_size, self.hidden_size = map(int, self._head.weight.shape)
        self.device: torch.device = self._embedding.weight.device
        self.dtype: torch.dtype = self._embedding.weight.dtype
        self.stop_ids = find_stop_ids(model, tokenizer)
        self.pad_id = find_pad_id(tokenizer, self.stop_ids)
        self.attention: str = model.config.get_text_config(decoder=True)._attn_implementation
        self.masks_checked = False  # see drafters.decoding.masks
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    @classmethod
    def load(
        cls,
        reference: str,
        *,
        dtype: str = "float32",
        device: torch.device | str = "cpu",
        thinking: bool = False,
        report: Callable[[str], None] = say,
    ) -> Target:
        """Load ``smollm2``, a model folder, or a hub id; weights from safetensors, no code from the model.

        ``dtype``: ``float32`` or ``bfloat16``. ``thinking``: the switch of chat templates that have one.
        ``report`` takes a line per slow step (the one-time fetch and conversion of ``smollm2``). Raises
        DataError if there is no such model, or it cannot serve as a target.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from drafters.target import smollm2

        source, id, note, sha256 = reference, reference, None, None
        if reference == smollm2.NAME:
            folder, sha256 = smollm2.prepare(report)
            source, note = str(folder), smollm2.NOTE
            if dtype != "float32":
                sha256 = None  # other values; computed when asked for
        elif not Path(reference).is_dir():
            report(f"target '{reference}': no folder of that name; asking the model hub, and fetching it if it is new")
        else:
            id = Path(reference).resolve().name  # a manifest names no machine's paths
        try:
            with no_progress_bars():
                tokenizer = AutoTokenizer.from_pretrained(source)
                model: Any = AutoModelForCausalLM.from_pretrained(
                    source, dtype=getattr(torch, dtype), use_safetensors=True
                )
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            near = difflib.get_close_matches(reference, [smollm2.NAME], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise DataError(
                f"target '{reference}': cannot be loaded as '{smollm2.NAME}', a model folder or a hub id "
                f"({reason}){hint}"
            ) from error
        return cls(model.to(device), tokenizer, id, note=note, sha256=sha256, thinking=thinking)

    @classmethod
    def of_run(cls, settings: Mapping[str, Any], device: torch.device | str = "cpu") -> Target:
        """The target as the settings of a run (its configuration, or what its manifest keeps of it) have it."""
        dtype, thinking = settings.get("target_dtype", "float32"), settings.get("thinking", False)
        return cls.load(settings["target"], dtype=dtype, thinking=thinking, device=device)

    def info(self) -> manifest.Target:
        """What a manifest says of this target; the sha256 of the weights is computed on the first call."""
        if self._sha256 is None:
            self._sha256 = weights_sha256(self.model)
        template = self.chat_template
        return manifest.Target(
            id=self.id,
            sha256=self._sha256,
            architecture=type(self.model).__name__,
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            vocab_size=self.vocab_size,
            note=self.note,
            chat_template_sha256=hashlib.sha256(template.encode()).hexdigest() if template else None,
        )

    def embed(self, ids: Tensor) -> Tensor:
        """Frozen input embedding of token ids [...], wherever they are: [..., H] on the target's device.

        As the model's embedding module gives it: with the scale that Gemma models keep inside that module;
        without multipliers or position embeddings that a model adds later.
        """
        return self._embedding(ids.to(self.device))

    @property
    def final_id(self) -> int:
        """Layer id under which :meth:`forward` gives the final hidden state, which the output head reads."""
        return self.num_layers - 1

    @property
    def head_weight(self) -> Tensor:
        """Weight of the output head, [vocab, H]. Raises DataError if the head has a bias, which slicing would lose."""
        if getattr(self._head, "bias", None) is not None:
            raise DataError(f"target '{self.id}': its output head has a bias, which a drafter's head does not support")
        return self._head.weight

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,
        *,
        layer_ids: Sequence[int] = (),
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        logits: int | Tensor | Literal["all"] = 0,
    ) -> TargetOutput:
        """Run ``input_ids`` [batch, length] after what ``cache`` holds.

        layer_ids: 0-based, ascending; id l is what transformers calls ``hidden_states[l + 1]``, so that the last one
            (:attr:`final_id`, not a drafter's to read) is taken after the final norm.
        attention_mask: [batch, cached + length], 0 at padding; positions are then counted over the ones unless
            ``position_ids`` [batch, length] says otherwise.
        logits: how many last positions to give logits for; 0 leaves the output head out. Or int64 [batch, kept]:
            which positions, row by row.

        The model's own forward makes the logits, so its soft-capping or multipliers are in them.
        """
        check_layer_ids([layer for layer in layer_ids if layer != self.final_id], self.num_layers)
        states = [self.model.base_model if layer == self.final_id else self._layers[layer] for layer in layer_ids]
        arguments: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        if attention_mask is not None and position_ids is None:
            positions = (attention_mask.long().cumsum(-1) - 1).clamp_min(0)
            position_ids = positions[:, -input_ids.shape[1] :]
        if position_ids is not None and self._takes_positions:
            arguments["position_ids"] = position_ids
        arguments |= {"cache": cache, "use_cache": cache is not None, "return_dict": True}
        with captured_outputs(states) as captured:
            if isinstance(logits, int) and logits == 0:
                self.model.base_model(**arguments)
                return TargetOutput(captured.features, None)
            output = self.model(**arguments, logits_to_keep=0 if isinstance(logits, str) else logits)  # 0 is all, there
        return TargetOutput(captured.features, output.logits)

    def new_cache(self) -> DynamicCache:
        """An empty KV cache for passes that append to it, sliding-window layers included."""
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    def encode_chat(self, messages: Sequence[dict[str, str]], *, generation_prompt: bool = True) -> list[int]:
        """Token ids of a chat up to where the answer starts, thinking on or off as the target was loaded.

        Without ``generation_prompt`` the chat is rendered as it is, its last message included. Raises DataError
        if the tokenizer has no chat template, or the template refuses the messages.
        """
        return self._apply_template(messages, generation_prompt, tokenize=True)

    def render_chat(self, messages: Sequence[dict[str, str]], *, generation_prompt: bool = True) -> str:
        """The text that :meth:`encode_chat` encodes."""
        return self._apply_template(messages, generation_prompt, tokenize=False)

    def _apply_template(self, messages: Sequence[dict[str, str]], generation_prompt: bool, *, tokenize: bool) -> Any:
        if not self.chat_template:
            raise DataError(f"target '{self.id}': its tokenizer has no chat template; use an instruction-tuned model")
        from jinja2 import TemplateError

        try:
            return self.tokenizer.apply_chat_template(
                list(messages),
                add_generation_prompt=generation_prompt,
                enable_thinking=self.thinking,  # templates that do not know the word ignore it
                tokenize=tokenize,
                return_dict=False,
            )
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise DataError(
                f"target '{self.id}': its chat template does not accept the roles {roles} ({error})"
            ) from error

    @property
    def chat_template(self) -> str | None:
        """The tokenizer's chat template, if it has one."""
        return self.tokenizer.get_chat_template() if self.tokenizer.chat_template else None

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, without special tokens."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    @torch.inference_mode()
    def greedy(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        *,
        layer_ids: Sequence[int] = (),
        stop: bool = True,
        feature_dtype: torch.dtype | None = None,
    ) -> GreedyOutput:
        """Answer a batch of prompts greedily: left padding, KV cache, finished rows leave the batch at once.

        stop: end a row at its first token in ``stop_ids``. feature_dtype: of the returned features (default:
        the model's), which stay on the model's device. Last bits of features and ties of logits depend on the
        batch's composition.
        """
        if not prompts or not all(prompts) or max_new_tokens < 1:
            raise ValueError(
                "a batch requires at least one prompt, each of at least one token, and answers of at least one token"
            )
        width = max(len(prompt) for prompt in prompts)
        padding = [width - len(prompt) for prompt in prompts]
        ids = torch.tensor([[self.pad_id] * pad + list(prompt) for pad, prompt in zip(padding, prompts, strict=True)])
        # a batch without padding needs no mask, which spares attention the work of applying one
        mask = (torch.arange(width) >= torch.tensor(padding)[:, None]).long() if any(padding) else None
        ids, mask = ids.to(self.device), mask if mask is None else mask.to(self.device)

        cache = self.new_cache()
        rows = list(range(len(prompts)))  # which prompt each row of the shrinking batch answers
        answers: list[list[int]] = [[] for _ in prompts]
        pieces: list[list[Tensor]] = [[] for _ in prompts]
        skip = padding
        while rows:
            output = self.forward(ids, layer_ids=layer_ids, attention_mask=mask, cache=cache, logits=1)
            if output.features is not None:
                features = output.features.to(feature_dtype or self.dtype)
                for row, index in enumerate(rows):
                    pieces[index].append(features[row, skip[index] :].clone())
            assert output.logits is not None
            ids = output.logits[:, -1].argmax(-1, keepdim=True)
            for index, token in zip(rows, ids[:, 0].tolist(), strict=True):
                answers[index].append(token)
            going = [
                row
                for row, index in enumerate(rows)
                if len(answers[index]) < max_new_tokens and not (stop and answers[index][-1] in self.stop_ids)
            ]
            if mask is not None:
                mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            if 0 < len(going) < len(rows):
                # a copy of the cache, which every step makes anyway when it appends to it
                kept = torch.tensor(going, device=self.device)
                cache.batch_select_indices(kept)
                ids, mask = ids[kept], mask if mask is None else mask[kept]
            rows, skip = [rows[row] for row in going], [0] * len(prompts)
        return GreedyOutput(answers, [torch.cat(piece) for piece in pieces] if layer_ids else None)
