"""The user's own methods: ``--methods my_module:my_loss``."""

from typing import TYPE_CHECKING, Any

from directloss.errors import UserError
from directloss.lab.options import load_own

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def call_own(
    method: str, scores: "Tensor", cost: "Tensor", structure: Any, generator: "torch.Generator | None"
) -> "Tensor":
    """``loss(scores, cost, structure, generator=g)`` of the user's; its mean, if it is one for each instance."""
    import torch

    loss = load_own(method)(scores, cost, structure, generator=generator)
    batch = scores.shape[: scores.dim() - structure.entry_dims]
    if not isinstance(loss, torch.Tensor) or loss.shape not in ((), batch):
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise UserError(
            f"{method} returned {got}; expected a loss without axes, or one for each instance, {tuple(batch)}"
        )
    if not loss.requires_grad:
        raise UserError(f"{method} returned a loss without a gradient: it must depend on the scores differentiably")
    return loss.mean()
