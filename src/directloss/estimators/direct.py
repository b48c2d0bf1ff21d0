"""Direct loss minimisation through randomly perturbed structured predictors: the paper.

For scores ``mu``, scale ``sigma``, noise ``gamma`` and a task loss that is linear in the structure,
``loss(y) = const + <cost, y>``, let

    theta = mu + sigma * gamma
    y     = argmax_y <theta, y>
    y_eps = argmax_y <theta + eps * cost, y>            on the same noise.

Then (corollary 2)

    d E[loss(y)] / d theta = lim_{eps -> 0} E[(y_eps - y) / eps],

and the chain rule carries it to the scores (equation 7: times d theta / d mu = 1) and to the scale (equation 8: times
d theta / d sigma = gamma). ``sigma = 0`` is direct loss minimisation (McAllester et al. 2010), ``sigma = 1`` is
Lorberbom et al. 2018, a learned ``sigma`` is Direct Stochastic Learning. ``sides="both"`` is the central difference
``(y_{+eps} - y_{-eps}) / (2 eps)`` of the same derivative, with a bias of second order in eps.
"""

from typing import Any, Literal, NamedTuple, cast, overload

import torch
from torch import Tensor, nn

from directloss.epsilon import AdaptiveEpsilon, check_epsilon
from directloss.noise import Gumbel, Noise
from directloss.structures import Structure

Sides = Literal["one", "both"]


class _Direct(torch.autograd.Function):
    """theta (..., *E), cost -> the values ``<cost, y>`` (...), whose gradient is the difference of two maximisers."""

    @staticmethod
    def forward(
        theta: Tensor, cost: Tensor, structure: Structure, epsilon: float, sides: Sides
    ) -> tuple[Tensor, Tensor, Tensor]:
        if sides == "one":
            y, difference = structure.solve_along(theta, cost, (0.0, epsilon))
            difference.sub_(y).div_(epsilon)
        else:
            y, difference, behind = structure.solve_along(theta, cost, (0.0, epsilon, -epsilon))
            difference.sub_(behind).div_(2 * epsilon)
        return _inner(cost, y, structure.entry_dims), y, difference

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _, y, difference = output
        ctx.entry_dims = inputs[2].entry_dims
        ctx.save_for_backward(difference)
        ctx.mark_non_differentiable(y, difference)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None, None]:
        (difference,) = ctx.saved_tensors
        return grads[0][(..., *[None] * ctx.entry_dims)] * difference, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], theta: Tensor, cost: Tensor, *rest: Any
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        # A structure takes any number of batch axes, so vmap's is one more, in front.
        theta = theta.expand(info.batch_size, *theta.shape) if in_dims[0] is None else theta.movedim(in_dims[0], 0)
        if in_dims[1] is not None:
            cost = cost.movedim(in_dims[1], 0)
            cost = cost.reshape(cost.shape[0], *[1] * (theta.dim() - cost.dim()), *cost.shape[1:])
        return cast(tuple[Tensor, Tensor, Tensor], _Direct.apply(theta, cost, *rest)), (0, 0, 0)


class DirectOutput(NamedTuple):
    """Everything one evaluation of the rule gives."""

    loss: Tensor  # (B...), the mean of <cost, y> over the samples; differentiable
    structure: Tensor  # (S, B..., *E), y of every sample
    informative: Tensor  # (B...), True where some sample's two maximisers differ


@torch.compiler.disable
def evaluate_direct(
    scores: Tensor,
    cost: Tensor,
    structure: Structure,
    *,
    epsilon: float,
    sides: Sides,
    scale: float | Tensor,
    noise: Noise,
    samples: int,
    generator: torch.Generator | None,
) -> DirectOutput:
    """The rule itself, with what diagnostics need. ``direct_loss`` and ``DirectLoss`` are made of it."""
    epsilon = check_epsilon(epsilon)
    if sides not in ("one", "both"):
        raise ValueError(f"sides is {sides!r}, expected 'one' (the paper's rule) or 'both' (central difference)")
    if samples < 1:
        raise ValueError(f"samples is {samples}, expected at least 1")
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores: got {type(scores).__name__}, expected a torch.Tensor")
    theta = _perturb(scores, structure, scale, noise, samples, generator)
    value, y, difference = cast(
        tuple[Tensor, Tensor, Tensor], _Direct.apply(theta, cost.detach().to(scores), structure, epsilon, sides)
    )
    entries = tuple(range(-structure.entry_dims, 0))
    return DirectOutput(value.mean(0), y, difference.any(dim=entries).any(0))


def _perturb(
    scores: Tensor,
    structure: Structure,
    scale: float | Tensor,
    noise: Noise,
    samples: int,
    generator: torch.Generator | None,
) -> Tensor:
    """theta = mu + sigma * gamma, (S, B..., *E); one sample without noise where sigma is the number 0."""
    if not isinstance(scale, Tensor):
        _check_scale(scale, 0 <= scale < float("inf"))
        if scale == 0:
            return scores.unsqueeze(0)
    else:
        if not torch._C._functorch.is_batchedtensor(scale):
            _check_scale(scale, bool((scale >= 0).all() and torch.isfinite(scale).all()))
        scale = _per_entry(scale.to(scores), scores, structure.entry_dims)
    gamma = noise.sample((samples, *scores.shape), generator=generator, dtype=scores.dtype, device=scores.device)
    return scores + scale * gamma


def _check_scale(scale: float | Tensor, valid: bool) -> None:
    if not valid:
        got = f"between {scale.min()} and {scale.max()}" if isinstance(scale, Tensor) else scale
        raise ValueError(f"scale is {got}; expected finite numbers >= 0 (a softplus keeps a learned scale positive)")


def _per_entry(scale: Tensor, scores: Tensor, entry_dims: int) -> Tensor:
    """A scale of one number, or one for each instance, or one for each entry, ready to multiply the noise."""
    batch = scores.shape[: scores.dim() - entry_dims]
    if scale.dim() <= len(batch):
        scale = scale[(..., *[None] * entry_dims)]
    try:
        if torch.broadcast_shapes(scale.shape, scores.shape) == scores.shape:
            return scale
    except RuntimeError:
        pass
    raise ValueError(
        f"scale broadcasts as {tuple(scale.shape)}, which does not fit scores of shape {tuple(scores.shape)}; "
        f"expected one number, one for each instance {tuple(batch)}, or one for each entry {tuple(scores.shape)}"
    )


def _inner(cost: Tensor, y: Tensor, entry_dims: int) -> Tensor:
    """``<cost, y>`` over the entries, without a temporary the size of y."""
    batch = y.shape[: y.dim() - entry_dims]
    flat = y.reshape(*batch, -1)
    cost = cost.expand(cost.shape[: cost.dim() - entry_dims] + y.shape[y.dim() - entry_dims :])
    return torch.einsum("...e,...e->...", flat, cost.reshape(*cost.shape[: cost.dim() - entry_dims], -1))


@overload
def direct_loss(
    scores: Tensor,
    cost: Tensor,
    structure: Structure,
    *,
    epsilon: float,
    sides: Sides = ...,
    scale: float | Tensor = ...,
    noise: Noise = ...,
    samples: int = ...,
    generator: torch.Generator | None = ...,
    return_structure: Literal[False] = ...,
) -> Tensor: ...


@overload
def direct_loss(
    scores: Tensor,
    cost: Tensor,
    structure: Structure,
    *,
    epsilon: float,
    sides: Sides = ...,
    scale: float | Tensor = ...,
    noise: Noise = ...,
    samples: int = ...,
    generator: torch.Generator | None = ...,
    return_structure: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def direct_loss(
    scores: Tensor,
    cost: Tensor,
    structure: Structure,
    *,
    epsilon: float,
    sides: Sides = "one",
    scale: float | Tensor = 0.0,
    noise: Noise = Gumbel(),  # noqa: B008  (frozen)
    samples: int = 1,
    generator: torch.Generator | None = None,
    return_structure: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The expected task loss ``E[<cost, y>]`` of a randomly perturbed structured predictor, differentiable.

    Args:
        scores: (B..., *E), from your network.
        cost: linear coefficients of the task loss, broadcasting to the scores (``dl.costs`` makes them).
        structure: what is predicted; its maximiser is called two or three times.
        epsilon: how far the augmented maximiser looks; not 0. Negative pulls towards better structures, positive
            pushes away from worse ones.
        sides: "one" is the paper's rule, "both" the central difference.
        scale: of the noise: a number, one for each instance (B...), or one for each entry. 0 draws no noise.
        noise: what is drawn.
        samples: draws for each instance.
        generator: the only source of randomness (None: torch's default generator).
        return_structure: also return the structures predicted under the noise, (samples, B..., *E).

    Returns:
        One value for each instance, (B...). Its gradient reaches ``scores`` and a ``scale`` that requires one.

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([[0.0, 2.0, 1.0]], requires_grad=True)
        >>> loss = dl.direct_loss(scores, torch.tensor([[1.0, 1.0, 0.0]]), dl.Choice(), epsilon=-2.0)
        >>> loss.sum().backward()
        >>> loss.item(), scores.grad
        (1.0, tensor([[ 0.0000,  0.5000, -0.5000]]))
    """
    output = evaluate_direct(
        scores,
        cost,
        structure,
        epsilon=epsilon,
        sides=sides,
        scale=scale,
        noise=noise,
        samples=samples,
        generator=generator,
    )
    return (output.loss, output.structure) if return_structure else output.loss


class DirectLoss(nn.Module):
    """``direct_loss`` as a criterion, with an epsilon that may adapt and a diagnostic.

    After a call, ``zero_gradient_fraction`` is the share of instances that gave no gradient.

    Args:
        structure, sides, noise, samples: as for ``direct_loss``.
        epsilon: a number, or ``AdaptiveEpsilon``, whose value is part of the ``state_dict``.

    Example:
        >>> import torch, directloss as dl
        >>> criterion = dl.DirectLoss(dl.Subset(2), epsilon=dl.AdaptiveEpsilon(-1.0), sides="both", samples=5)
        >>> loss = criterion(torch.zeros(4, 6), dl.costs.hamming(torch.eye(6)[:4]), scale=1.0)
        >>> loss.shape
        torch.Size([4])
    """

    def __init__(
        self,
        structure: Structure,
        *,
        epsilon: float | AdaptiveEpsilon,
        sides: Sides = "one",
        noise: Noise = Gumbel(),  # noqa: B008  (frozen)
        samples: int = 1,
    ):
        super().__init__()
        self.structure, self.sides, self.noise, self.samples = structure, sides, noise, samples
        self.epsilon = epsilon if isinstance(epsilon, AdaptiveEpsilon) else check_epsilon(epsilon)
        self.zero_gradient_fraction = float("nan")

    def forward(
        self,
        scores: Tensor,
        cost: Tensor,
        scale: float | Tensor = 0.0,
        generator: torch.Generator | None = None,
        return_structure: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        output = evaluate_direct(
            scores,
            cost,
            self.structure,
            epsilon=float(self.epsilon),
            sides=self.sides,
            scale=scale,
            noise=self.noise,
            samples=self.samples,
            generator=generator,
        )
        self._observe(output, cost)
        return (output.loss, output.structure) if return_structure else output.loss

    @torch.no_grad()
    @torch.compiler.disable
    def _observe(self, output: DirectOutput, cost: Tensor) -> None:
        if not output.informative.numel():
            return
        self.zero_gradient_fraction = 1.0 - output.informative.double().mean().item()
        if isinstance(self.epsilon, AdaptiveEpsilon):
            difference = bool(output.informative.any())
            self.epsilon.update(difference, not difference and self._loss_is_positive(output, cost))

    def _loss_is_positive(self, output: DirectOutput, cost: Tensor) -> bool:
        """Whether some instance's loss is above the smallest that its structures allow.

        Compared with the best structure, not with zero: ``<cost, y>`` lacks the loss's constant.
        """
        dims = self.structure.entry_dims
        cost = cost.to(output.structure).expand(output.structure.shape[1:])
        smallest = _inner(cost, self.structure.solve(-cost), dims)
        return bool((output.loss > smallest + 1e-6 * (1 + smallest.abs())).any())

    def extra_repr(self) -> str:
        fixed = "" if isinstance(self.epsilon, AdaptiveEpsilon) else f"epsilon={self.epsilon:g}, "
        return f"{self.structure!r}, {fixed}sides={self.sides!r}, noise={self.noise!r}, samples={self.samples}"
