"""Gumbel-Sinkhorn (Mena et al. 2018): matchings relaxed to doubly stochastic matrices.

``sinkhorn`` normalises the rows and columns of ``exp(scores / temperature)`` in turns, in log space:

    u = -logsumexp_j(A + v),   v = -logsumexp_i(A + u),   P = exp(A + u + v),   A = scores / temperature.

Its gradient is that of the iterations themselves. On the CPU a kernel keeps one matrix in the cache through all of
them and remembers only the vectors u and v; elsewhere the same lines run as torch operations.
"""

from typing import Any

import torch
from torch import Tensor

from directloss import threads
from directloss.layers.checks import check_scores, fitting, over_temperature
from directloss.structures.base import Structure
from directloss.structures.matching import Matching
from directloss.transforms import inside_transform

# Handing fewer exponentials than this to another thread costs more than it gains.
_LEAST_WORK = 100_000


def sinkhorn(scores: Tensor, structure: Structure, temperature: float = 1.0, iterations: int = 20) -> Tensor:
    """Square scores (..., n, n) -> nearly doubly stochastic matrices, columns exactly so. Takes ``Matching``.

    Args:
        scores: any number of batch axes. With Gumbel noise, by ``dl.perturb``, this is Gumbel-Sinkhorn.
        structure: ``Matching()``; forbidden pairs get nothing.
        temperature: towards 0 the result approaches the best matching.
        iterations: of normalising rows, then columns.

    Example:
        >>> import torch, directloss as dl
        >>> relaxed = dl.sinkhorn(dl.perturb(torch.zeros(4, 3, 3), samples=2), dl.Matching())
        >>> relaxed.shape, torch.allclose(relaxed.sum(-2), torch.ones(2, 4, 3))
        (torch.Size([2, 4, 3, 3]), True)
    """
    matching = fitting("sinkhorn", structure, Matching)
    _check_square(scores)
    matching.batch_shape(scores)  # for its checks
    if not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations is {iterations!r}, expected a whole number, at least 1")
    log_kernel = over_temperature(scores, temperature)
    if matching.forbidden is not None:
        return _sinkhorn_in_torch(log_kernel.masked_fill(matching.forbidden, -torch.inf), iterations)
    in_kernel = scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64) and scores.numel()
    if in_kernel and not inside_transform():
        normalized: Tensor = _Sinkhorn.apply(log_kernel, iterations)
        return normalized
    return _sinkhorn_in_torch(log_kernel, iterations)


def _check_square(scores: Tensor) -> None:
    check_scores(scores)
    if scores.dim() < 2 or scores.shape[-1] != scores.shape[-2] or not scores.shape[-1]:
        raise ValueError(f"scores have shape {tuple(scores.shape)}, expected square matrices (..., n, n)")


def _sinkhorn_in_torch(log_kernel: Tensor, iterations: int) -> Tensor:
    v = log_kernel.new_zeros((*log_kernel.shape[:-2], 1, log_kernel.shape[-1]))
    for _ in range(iterations):
        u = -torch.logsumexp(log_kernel + v, -1, keepdim=True)
        v = -torch.logsumexp(log_kernel + u, -2, keepdim=True)
    return torch.exp(log_kernel + u + v)


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_kernel: Tensor, iterations: int) -> Tensor:
        from directloss.layers.sinkhorn_kernel import forward

        a = log_kernel.detach().contiguous().reshape(-1, *log_kernel.shape[-2:])
        p, u = torch.empty_like(a), a.new_empty(len(a), iterations, a.shape[-1])
        v = torch.empty_like(u)
        arrays = [tensor.numpy() for tensor in (a, p, u, v)]
        threads.split(lambda first, last: forward(*arrays, first, last), len(a), _least(a, iterations))
        ctx.save_for_backward(a, p, u, v)
        return p.reshape(log_kernel.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        from directloss.layers.sinkhorn_kernel import backward

        a, p, u, v = ctx.saved_tensors
        to_a = (grad.reshape(p.shape) * p).contiguous()
        arrays = [tensor.numpy() for tensor in (a, u, v, to_a)]
        threads.split(lambda first, last: backward(*arrays, first, last), len(a), _least(a, u.shape[1]))
        return to_a.reshape(grad.shape), None


def _least(a: Tensor, iterations: int) -> int:
    return _LEAST_WORK // (a[0].numel() * iterations)
