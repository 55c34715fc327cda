"""FSDP2: the drafter's weights, gradients and moments in parts, one a rank, put together for each pass.

One group of parameters: a drafter is a few layers, whose contexts are projected before the first of them runs. The
frozen target stays whole on every rank. Gradients are sums over the ranks, as everywhere (drafters.training.group).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from drafters.model.drafter import Drafter


def shard(module: nn.Module, optimizer: torch.optim.AdamW, world: int) -> torch.optim.AdamW:
    """Shard ``module``, which is equal on all ranks, in place; the optimizer of the parts, with the same moments."""
    moments = {name: dict(optimizer.state[parameter]) for name, parameter in module.named_parameters()}
    device = next(module.parameters()).device
    fully_shard(module, mesh=init_device_mesh(device.type, (world,)))
    assert isinstance(module, FSDPModule)
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
    settings = optimizer.defaults
    parts = torch.optim.AdamW(
        module.parameters(),
        lr=settings["lr"],
        betas=settings["betas"],
        weight_decay=settings["weight_decay"],
        fused=True,
    )
    for name, parameter in module.named_parameters():
        assert isinstance(parameter.data, DTensor)
        mesh, placements = parameter.data.device_mesh, parameter.data.placements
        for key, value in moments[name].items():
            parts.state[parameter][key] = distribute_tensor(value, mesh, placements) if value.dim() else value
    return parts


def gathered(drafter: Drafter, optimizer: torch.optim.Optimizer) -> tuple[Drafter, torch.optim.Optimizer]:
    """The whole drafter and its moments, as copies, on every rank; all ranks have to ask."""
    plain = Drafter(drafter.config).to(drafter.norm.weight.device).cast(drafter.dtype).train(drafter.training)
    moments = torch.optim.AdamW(plain.parameters())
    with torch.no_grad():
        for (_, ours), (_, theirs) in zip(plain.named_parameters(), drafter.named_parameters(), strict=True):
            ours.copy_(full(theirs))
            moments.state[ours] = {key: full(value) for key, value in optimizer.state[theirs].items()}
    return plain, moments


def full(tensor: Tensor) -> Tensor:
    """The whole tensor of one that is in parts; all ranks have to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
