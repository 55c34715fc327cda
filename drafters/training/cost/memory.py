"""Peak memory of a training step, from the tensors that the drafter and its loss keep for the backward pass.

With M slots and R context tokens, width H, MLP width I, h heads and k key heads of d dimensions, S context tokens of a
sequence and B slots of a block, T target layers, D draft layers; a matrix product keeps its inputs in w bytes, 4 in
float32 and 2 under autocast, everything else is 4 bytes wide. The most is held either when the loss is differentiated
or when the last layer's attention is, so

    peak = state + max(target pass, activations + max(loss, a layer's backward pass))
    state = 4 P (weights) + 8 P (moments) + 4 P (gradients) [+ 4 P (several ranks)] + target + head
    activations = features + fusion + D (context + norms + attention + MLP) [+ 2 P (weights cast by autocast)]

The docstring of each function has its terms. Not counted: the allocator's fragments, the libraries' own workspaces and
the device's context (about 1 GB on a GPU).
"""

from __future__ import annotations

from dataclasses import dataclass

from drafters.axes import DrafterConfig
from drafters.model.drafter import SCORE_LIMIT
from drafters.training.cost.shapes import Sizes, StepShape


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank at the peak of a step."""

    weights: int
    moments: int
    gradients: int
    copies: int  # for the ranks' communication: DDP's buckets, or FSDP's weights put together
    target: int
    head: int  # a copy of the output head's rows, where it has another type or fewer rows than the target's
    features: int
    activations: int
    workspace: int  # of what takes most: the loss, a layer's attention, or the target's own pass

    @property
    def peak(self) -> int:
        """Their sum."""
        return sum(vars(self).values())


def memory(
    config: DrafterConfig, size: Sizes, step: StepShape, *, precision: str, target_bytes: int, online: bool,
    target_intermediate: int, final_state: bool, distill: str, sharded: bool,
) -> Memory:  # fmt: skip
    """Peak memory of one rank.

    ``target_bytes``: of a weight of the target, ``target_intermediate`` the width of its MLP.
    ``online``: it reads the examples in each step. ``final_state``: its final hidden state is read too. ``sharded``:
    weights and moments are in parts, one a rank; the gradients of a pass are whole.

    With several micro-batches the gradients of those before are held all along; with one they appear as the activations
    go, and only the larger of the two counts.
    """
    width = 2 if precision == "bfloat16" else 4
    parts = step.ranks if sharded else 1
    total, exact = size.drafter["total"], 8 if precision == "float64" else 4
    scale = exact // 4  # float64 doubles whatever is float32
    read = len(config.target_layer_ids) + final_state
    features = 4 * step.rows * read * config.hidden_size * scale
    kept = _fusion(config, step, width) + config.num_layers * _layer(config, step, width) + _ends(config, step)
    kept = kept * scale + (2 * size.matrices if width == 2 else 0)
    loss = _loss(config, step, width, distill) * scale
    workspace = max(loss, _backward(config, step, width) * scale)
    gradients = exact * total
    if step.micro_batches == 1:
        gradients = max(0, gradients - kept - workspace)
    if online and (passing := _target_pass(config, step, target_bytes, read, target_intermediate)) > kept + workspace:
        kept, workspace = 0, passing
    return Memory(
        weights=exact * total // parts,
        moments=2 * exact * total // parts,
        gradients=gradients,
        copies=exact * total if step.ranks > 1 else 0,
        target=target_bytes * size.target,
        head=_head_copy(config, step, target_bytes, target_bytes if width == 2 else exact),
        features=features,
        activations=kept,
        workspace=workspace,
    )


def _fusion(config: DrafterConfig, step: StepShape, width: int) -> int:
    """Kept by the fusion beside the features 4 R T H.

    A projection keeps its input cast (2 R T H under autocast; a gated one 4 R T H in float32, the gated features) and,
    in the norm after it, input, normed input and output: 12 R H. A layer-wise fusion keeps the same of D views;
    normed before, 4 R T H of normed features, w R T H of scaled ones, and w R D H. Under autocast each key and value
    projection keeps a cast of its own of the norm's output. A gate that reads the last state keeps it normed.
    """
    rows, hidden, layers = step.rows, config.hidden_size, len(config.target_layer_ids)
    projected = config.fusion in ("concat", "gated")
    views = 1 if projected else config.num_layers
    cast = 4 * config.num_layers * rows * hidden  # two casts of 2 bytes for each layer's key and value
    if not projected and config.fusion_norm == "before":
        kept = (4 + width) * rows * layers * hidden + width * config.num_layers * rows * hidden
    else:
        after = 4 + 2 if width == 2 else 12
        kept = after * rows * views * hidden + (cast if width == 2 else 0)
        kept += 2 * rows * layers * hidden if width == 2 else 0
        kept += 4 * rows * layers * hidden if width == 4 and config.fusion == "gated" else 0
    reads_state = config.fusion == "layerwise_gated" or (config.fusion == "gated" and config.gate_input == "last")
    return kept + (4 * rows * hidden if reads_state else 0)


def _layer(config: DrafterConfig, step: StepShape, width: int) -> int:
    """Kept by a draft layer.

    Two norms: 2 (4 + 4) M H of inputs and normed inputs, and w (or a cast for each product) of outputs: 24 M H, 26 M H
    under autocast. Queries: raw, normed, scaled, and the attention's output, 16 M h d (12). Keys 12 M k d (8), values
    w M k d. Attention weights 4 M h (S + B), and again in w for the products with the values; over SCORE_LIMIT scores
    these are made again. MLP 4 w M I. Context keys and values 16 R k d (14). A local convolution keeps, around each of
    two sublayers, taps + 1 times M H before and after it, and its kernels.
    """
    slots, rows, hidden = step.slots, step.rows, config.hidden_size
    heads, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    full = width == 4
    kept = (24 if full else 26) * slots * hidden
    kept += (16 if full else 12) * slots * heads + (12 + 4 if full else 8 + 2) * slots * keys
    kept += 4 * width * slots * config.intermediate_size
    kept += (16 if full else 14) * rows * keys
    if attention_scores(config, step) <= SCORE_LIMIT:
        kept += (4 + width) * attention_scores(config, step)
    if config.mixing == "conv":
        taps = config.conv_kernel_size
        kernels = 2 * taps * hidden // config.conv_group_size
        kept += 2 * slots * (4 * (taps + 1) * hidden + width * (taps + 1) * hidden + width * kernels)
    return kept


def _ends(config: DrafterConfig, step: StepShape) -> int:
    """Embeddings 4 M H, the last norm 12 M H, the supervised states 4 n H, cos and sin of each slot 8 M d."""
    return (
        16 * step.slots * config.hidden_size
        + 4 * step.supervised * config.hidden_size
        + (8 * step.slots * config.head_dim)
    )


def _loss(config: DrafterConfig, step: StepShape, width: int, distill: str) -> int:
    """Of n' slots at once, V' rows of the head: log-probabilities, their gradient and that of the logits, 12 n' V'.

    A distance to the target's distribution has 28 n' V' in all (36 n' V' for kl), a confidence head 24 n' V', a Markov
    head 16 n' V' while it adds its bias. A path selector adds its candidates' vectors, 20 n' K r.
    """
    each = 12
    if config.selection.startswith("markov"):
        each = 16
    if config.confidence == "head":
        each = max(each, 24)
    if distill != "none":
        each = max(each, 37 if distill == "kl" else 28)
    found = each * step.piece * step.vocabulary
    if config.selection == "path":
        found += 20 * step.piece * config.selection_top_k * config.selection_rank
    return found


def attention_scores(config: DrafterConfig, step: StepShape) -> int:
    """Attention scores of a layer: M h (S + B)."""
    return step.slots * config.num_attention_heads * (step.length - 1 + step.block_size)


def _backward(config: DrafterConfig, step: StepShape, width: int) -> int:
    """Of the last layer, whichever is larger: the MLP's three gradients, 3 w M I; or, when what the MLP kept is gone,
    the gradients of the attention weights, of the scores and of the context's part, 12 M h (S + B). Of scores that are
    made again in groups, the weights and their copy besides, of one group."""
    inner = width * step.slots * config.intermediate_size
    scores = attention_scores(config, step)
    return max(3 * inner, (12 * scores if scores <= SCORE_LIMIT else 20 * SCORE_LIMIT) - 4 * inner)


def _head_copy(config: DrafterConfig, step: StepShape, held: int, wanted: int) -> int:
    """Rows of the output head in another type than the target's, or fewer than it has; else they are the target's."""
    copied = config.draft_vocab is not None or held != wanted
    return step.vocabulary * config.hidden_size * wanted if copied else 0


def _target_pass(config: DrafterConfig, step: StepShape, width: int, read: int, intermediate: int) -> int:
    """The target's forward pass over R tokens: captured states w R T H, and w R (4 H + 3 I) of one layer."""
    return width * step.rows * (read * config.hidden_size + 4 * config.hidden_size + 3 * intermediate)
