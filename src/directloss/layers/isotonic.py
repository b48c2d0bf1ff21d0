"""Projections onto the permutahedron (Blondel et al. 2020), for ``soft_sort`` and ``soft_rank``.

For s and w that both fall, the projection of s onto the hull of all permutations of w is s - v, where v solves an
isotonic regression: it falls too, and pooling adjacent violators splits the positions into blocks with one v for each,

    quadratic:  v = mean(s) - mean(w),      entropic:  v = logsumexp(s) - logsumexp(w)      over the block.

Entropic is the logarithm of the projection, by Kullback and Leibler, of exp(s) onto the hull of the permutations of
exp(w). On the CPU a kernel does it all. Elsewhere, and for second derivatives, only the blocks come from a kernel, and
torch does the rest, in the same way.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.layers.checks import check_scores
from directloss.structures.arrays import instances
from directloss.structures.checks import largest_magnitude
from directloss.structures.subset import Subset
from directloss.transforms import inside_transform

Kind = Literal["quadratic", "entropic"]

# Handing fewer entries than this to another thread costs more than it gains.
_LEAST_WORK = 20_000


@dataclass(frozen=True)
class Projection:
    """What is projected onto what: ``scale * values`` onto the permutations of ``fixed``, or the other way round."""

    fixed: Tensor  # (n,), falling
    scale: float  # of either sign
    ranks: bool  # whether the values are projected, and their logarithm, if entropic, is undone
    entropic: bool

    def __call__(self, values: Tensor) -> Tensor:
        """(..., n) -> ranks (..., n) in the order of the values, or the sorted values, the largest first."""
        if values.device.type == "cpu" and values.numel() and not inside_transform():
            found: Tensor = _Project.apply(values, self)
            return found
        return self.in_torch(values)

    def in_torch(self, values: Tensor) -> Tensor:
        order = values.detach().argsort(-1, descending=self.scale > 0)
        falling = values.gather(-1, order)
        fixed = self.fixed.to(values)
        s, w = (self.scale * falling, fixed) if self.ranks else (fixed, falling)
        start = _Blocks.apply(s.detach(), w.detach(), self.entropic)
        y = w + self._residual(s, start) - self._residual(w, start)
        if not self.ranks:
            return y
        return torch.zeros_like(y).scatter(-1, order, y.exp() if self.entropic else y)

    def _residual(self, x: Tensor, start: Tensor) -> Tensor:
        """x less the mean, or the logsumexp, of its block."""
        x = x.expand(start.shape)
        below = x - x.detach().gather(-1, start)  # the first of a block is its largest
        sums, sizes = (
            torch.zeros_like(x).scatter_add(-1, start, terms).gather(-1, start)
            for terms in (below.exp() if self.entropic else below, torch.ones_like(x))
        )
        return below - (sums.log() if self.entropic else sums / sizes)


def check_values(values: Tensor, regularization: float, kind: str) -> Tensor:
    """The values, in float32 at least. Raise TypeError or ValueError unless they can be sorted softly."""
    check_scores(values)
    Subset(1).batch_shape(values)  # for its checks
    if kind not in ("quadratic", "entropic"):
        raise ValueError(f"kind is {kind!r}, expected 'quadratic' or 'entropic'")
    if not 0 < regularization < math.inf:
        raise ValueError(f"regularization is {regularization}, expected a positive number")
    if not inside_transform():
        largest = max(largest_magnitude(values.detach(), "values"), float(values.shape[-1]))
        if largest / regularization > torch.finfo(torch.float32).max:
            raise ValueError(
                f"values up to {largest:g} over a regularization of {regularization:g} are too large; scale the values "
                "down, or raise the regularization"
            )
    return values.to(torch.promote_types(values.dtype, torch.float32))


def places(values: Tensor) -> Tensor:
    """n, n - 1, ..., 1, in float64."""
    return torch.arange(values.shape[-1], 0, -1, dtype=torch.float64, device="cpu")


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rule: Projection) -> Tensor:
        from directloss.layers.isotonic_kernel import project

        x = instances(values, 1)
        whole = np.uint32 if x.itemsize == 4 else np.uint64
        y, order = np.empty_like(x), np.empty(x.shape, np.int32)
        begins = np.empty((len(x), x.shape[1] + 1), np.int32)
        fixed = rule.fixed.numpy()
        _split(project, x, x.view(whole), whole(1), rule.scale, fixed, rule.ranks, rule.entropic, y, order, begins)
        ctx.save_for_backward(values)
        ctx.rule, ctx.found = rule, (y, order, begins)
        return torch.from_numpy(y).reshape(values.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        from directloss.layers.isotonic_kernel import project_back

        (values,), rule = ctx.saved_tensors, ctx.rule
        if torch.is_grad_enabled():  # a second derivative may follow
            (found,) = torch.autograd.grad(rule.in_torch(values), values, grad, create_graph=True)
            return found, None
        x = instances(values, 1)
        result = np.empty_like(x)
        _split(project_back, x, rule.scale, rule.ranks, rule.entropic, *ctx.found, instances(grad, 1), result)
        return torch.from_numpy(result).reshape(values.shape), None


class _Blocks(torch.autograd.Function):
    """Where the block of each position starts, (..., n). An axis of vmap is one more batch axis."""

    @staticmethod
    def forward(s: Tensor, w: Tensor, entropic: bool) -> Tensor:
        from directloss.layers.isotonic_kernel import blocks

        shape = torch.broadcast_shapes(s.shape, w.shape)
        rows = [instances(x.double(), 1) for x in (s, w)]
        start = np.empty((math.prod(shape[:-1]), shape[-1]), np.int64)
        _split(blocks, *rows, entropic, start)
        return torch.from_numpy(start).reshape(shape).to(s.device)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, s: Tensor, w: Tensor, entropic: bool) -> tuple[Tensor, int]:
        s, w = (x if dim is None else x.movedim(dim, 0) for x, dim in zip((s, w), in_dims, strict=False))
        return _Blocks.apply(s, w, entropic), 0


def _split(kernel: Callable[..., int], *arguments: Any) -> None:
    """Call a kernel for all rows of its last argument, in several threads where that pays."""
    rows, n = arguments[-1].shape
    threads.split(lambda first, last: kernel(*arguments, first, last), rows, _LEAST_WORK // n)
