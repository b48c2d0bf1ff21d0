"""Optimisers of image nets by name, and how their rate changes over training."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

# Of the polynomial a x + b x^3 + c x^5 of singular values, which takes all of them near 1 in a few steps.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Filters are turned by the orthogonal factor of their momentum (Jordan et al. 2024), the rest moves by Adam.

    A tensor of filters W, as a matrix with one row for each, keeps its norm:

        M <- momentum * M + gradient;   U = orthogonal factor of (gradient + momentum * M)
        W <- W - rate * |W| / |U| * U, scaled back to |W|,

    so ``lr`` is the angle of a step. It suits nets in which a norm follows every convolution: the size of the filters
    means nothing there. Adam's rate for vectors and linear layers is ``others * lr``.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.6,
        others: float = 0.03,
    ):
        if weight_decay:
            raise ValueError(f"weight_decay is {weight_decay}, but filters keep their norm: expected 0")
        super().__init__(params, {"lr": lr, "momentum": momentum, "others": others})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step by the gradients that are there."""
        if closure is not None:
            raise TypeError("Muon takes no closure: call backward() before step()")
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    (self._turn if weight.dim() == 4 else self._move)(weight, weight.grad, group)

    def _turn(self, weight: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"].mul_(group["momentum"]).add_(grad)
        # Rows as they lie in memory: the order of a row's entries does not matter.
        direction = torch.add(grad, momentum, alpha=group["momentum"]).movedim(1, -1).flatten(1)
        turn = orthogonal_factor(direction).unflatten(1, (*weight.shape[2:], weight.shape[1])).movedim(-1, 1)
        size = weight.norm()
        weight.sub_(turn * (group["lr"] * size / turn.norm().clamp_min(1e-12)))
        weight.mul_(size / weight.norm().clamp_min(1e-12))

    def _move(self, weight: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state |= {"steps": torch.zeros(()), "mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        state["steps"] += 1
        state["mean"].lerp_(grad, 0.1)
        state["square"].lerp_(grad.square(), 0.001)
        mean, square = state["mean"] / (1 - 0.9 ** state["steps"]), state["square"] / (1 - 0.999 ** state["steps"])
        weight.sub_(group["others"] * group["lr"] * mean / (square.sqrt() + 1e-8))


def orthogonal_factor(matrix: Tensor, steps: int = 3) -> Tensor:
    """About U V^T of the singular value decomposition U S V^T of a matrix, by Newton-Schulz iteration.

    Singular values come near 1, from about .7 to 1.2, but for those that are tiny beside the largest.
    """
    a, b, c = _COEFFICIENTS
    wide = matrix.shape[0] <= matrix.shape[1]
    x = matrix if wide else matrix.mT
    x = x / x.norm().clamp_min(1e-12)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "nesterov": partial(torch.optim.SGD, momentum=0.85, nesterov=True),
    "muon": Muon,
}


def rate(done: float, rise: float) -> float:
    """The factor of the learning rate after a share of training: it rises to 1 over the share ``rise``, then falls."""
    return done / rise if done < rise else (1 - done) / (1 - rise)
