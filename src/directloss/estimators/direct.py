"""Direct loss minimisation through randomly perturbed structured predictors: the paper.

For scores ``mu``, scale ``sigma``, noise ``gamma`` and a task loss that is linear in the structure,
``loss(y) = const + <cost, y>``, let

    theta = mu + sigma * gamma
    y     = argmax_y <theta, y>
    y_eps = argmax_y <theta + eps * cost, y>            on the same noise.

Then (corollary 2)

    d E[loss(y)] / d theta = lim_{eps -> 0} E[(y_eps - y) / eps],

and the chain rule carries it to the scores (equation 16: times d theta / d mu = 1) and to the scale (equation 17: times
d theta / d sigma = gamma). ``sigma = 0`` is direct loss minimisation (McAllester et al. 2010), ``sigma = 1`` is
Lorberbom et al. 2018, a learned ``sigma`` is Direct Stochastic Learning. ``sides="both"`` is the central difference
``(y_{+eps} - y_{-eps}) / (2 eps)`` of the same derivative, with a bias of second order in eps.
"""

from typing import Any, Literal, NamedTuple, cast, overload

import torch
from torch import Tensor, nn

from directloss.epsilon import AdaptiveEpsilon, check_epsilon
from directloss.noise import Gumbel, Noise, check_samples, draw
from directloss.shapes import check_scale, fit_cost, fit_scale
from directloss.structures import Structure

Sides = Literal["one", "both"]


class _Direct(torch.autograd.Function):
    """scores, scale (B..., *E) and noise (S, B..., *E) -> the mean over samples of ``<cost, y>``, (B...).

    Its gradients are equations 16 and 17, written on the few ones of ``y_eps`` and ``y``.
    """

    @staticmethod
    def forward(
        scores: Tensor, scale: Tensor, noise: Tensor, cost: Tensor, structure: Structure, epsilon: float, sides: Sides
    ) -> tuple[Tensor, Tensor, Tensor]:
        check_scale(scale)
        theta = torch.addcmul(scores, scale, noise)
        steps = (0.0, epsilon) if sides == "one" else (0.0, epsilon, -epsilon)
        ones = structure.ones_along(theta, cost, steps)  # (T, S, B..., K)
        value = _at(cost, ones[0], structure.entry_dims).sum(-1).mean(0)
        return value, ones, _at(noise, ones, structure.entry_dims)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        scores, scale, _, _, structure, ctx.epsilon, ctx.sides = inputs
        _, ones, noise = output
        ctx.entries = scores.shape[scores.dim() - structure.entry_dims :]
        ctx.scale_shape = scale.shape
        ctx.save_for_backward(ones, noise)
        ctx.mark_non_differentiable(ones, noise)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        ones, noise = ctx.saved_tensors
        ahead, behind, width = (1, 0, ctx.epsilon) if ctx.sides == "one" else (1, 2, 2 * ctx.epsilon)
        if width < 0:
            ahead, behind, width = behind, ahead, -width
        # Where both have a one at the same place, exactly nothing is left, not a rounding error.
        differs = (ones[ahead] != ones[behind]).to(noise.dtype)
        where = torch.cat([ones[ahead], ones[behind]], -1)
        sign = torch.cat([differs, -differs], -1) * (where >= 0)
        factor = (grads[0] / (width * ones.shape[1]))[(..., *[None] * len(ctx.entries))]
        to_scores = factor * _add_up(where, sign, ctx.entries)
        to_scale = None
        if ctx.needs_input_grad[1]:
            drawn = torch.cat([noise[ahead], noise[behind]], -1)
            to_scale = (factor * _add_up(where, sign * drawn, ctx.entries)).sum_to_size(ctx.scale_shape)
        return to_scores, to_scale, None, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], *inputs: Any
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        # A structure takes any number of batch axes, so vmap's is one more: before the batch, after the samples.
        scores, scale, noise, cost = (
            tensor.unsqueeze(0).expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(inputs[:4], in_dims[:4], strict=True)
        )
        output = _Direct.apply(scores, scale, noise.movedim(0, 1), cost, *inputs[4:])
        return cast(tuple[Tensor, Tensor, Tensor], output), (0, 2, 2)


def _at(entries: Tensor, ones: Tensor, entry_dims: int) -> Tensor:
    """The values of ``entries`` (..., *E) at the positions ``ones``; 0 where they say -1."""
    flat = entries.flatten(entries.dim() - entry_dims)
    flat = flat.expand(*ones.shape[:-1], flat.shape[-1])
    return flat.gather(-1, ones.clamp_min(0)) * (ones >= 0)


def _add_up(where: Tensor, values: Tensor, entries: torch.Size) -> Tensor:
    """Add ``values`` (S, B..., K) up at positions ``where``, over the samples: (B..., *E)."""
    where, values = (tensor.movedim(0, -2).flatten(-2) for tensor in (where.clamp_min(0), values))
    total = values.new_zeros((*values.shape[:-1], entries.numel())).scatter_add(-1, where, values)
    return total.reshape(*values.shape[:-1], *entries)


class DirectOutput(NamedTuple):
    """Everything one evaluation of the rule gives."""

    loss: Tensor  # (B...), the mean of <cost, y> over the samples; differentiable
    ones: Tensor  # (T, S, B..., K), the positions of the ones of y, y_eps and (both sides) y_{-eps}
    informative: Tensor  # (B...), True where some sample gives a difference


@torch.compiler.disable
def evaluate_direct(
    scores: Tensor,
    cost: Tensor,
    structure: Structure,
    *,
    epsilon: float,
    sides: Sides,
    scale: float | Tensor,
    noise: Noise | Tensor,
    samples: int,
    generator: torch.Generator | None,
) -> DirectOutput:
    """The rule itself, with what diagnostics need. ``direct_loss`` and ``DirectLoss`` are made of it."""
    epsilon = check_epsilon(epsilon)
    if sides not in ("one", "both"):
        raise ValueError(f"sides is {sides!r}, expected 'one' (the paper's rule) or 'both' (central difference)")
    check_samples(samples)
    if not isinstance(scores, Tensor) or not isinstance(cost, Tensor):
        raise TypeError(f"scores and cost are {type(scores).__name__} and {type(cost).__name__}, expected tensors")
    factor = fit_scale(scale, scores, structure.batch_shape(scores))
    if not isinstance(scale, Tensor) and scale == 0:
        gamma = torch.zeros_like(scores).unsqueeze(0)
    else:
        gamma = draw(noise, samples, scores, generator)
    loss, ones, _ = cast(
        tuple[Tensor, Tensor, Tensor],
        _Direct.apply(scores, factor, gamma, fit_cost(cost, scores), structure, epsilon, sides),
    )
    return DirectOutput(loss, ones, (ones[1] != ones[0 if sides == "one" else 2]).any(-1).any(0))


@overload
def direct_loss(
    scores: Tensor,
    cost: Tensor,
    structure: Structure,
    *,
    epsilon: float,
    sides: Sides = ...,
    scale: float | Tensor = ...,
    noise: Noise | Tensor = ...,
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
    noise: Noise | Tensor = ...,
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
    noise: Noise | Tensor = Gumbel(),
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
        noise: what is drawn, or the draws themselves, (samples, B..., *E), to share them between calls.
        samples: draws for each instance (with given draws, leave it out).
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
    return (output.loss, structure.dense(output.ones[0], scores)) if return_structure else output.loss


class DirectLoss(nn.Module):
    """``direct_loss`` as a criterion, with an epsilon that may adapt and a diagnostic.

    After a call, ``zero_gradient_fraction`` is the share of instances that gave no gradient.

    Args:
        structure, sides, noise, samples: as for ``direct_loss``.
        epsilon: a number, or ``AdaptiveEpsilon``, which adapts in training mode and is part of the ``state_dict``.

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
        noise: Noise = Gumbel(),
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
        self._observe(output, fit_cost(cost, scores))
        return (output.loss, self.structure.dense(output.ones[0], scores)) if return_structure else output.loss

    @torch.no_grad()
    @torch.compiler.disable
    def _observe(self, output: DirectOutput, cost: Tensor) -> None:
        if not output.informative.numel():
            return
        self.zero_gradient_fraction = 1.0 - output.informative.double().mean().item()
        if self.training and isinstance(self.epsilon, AdaptiveEpsilon):
            difference = bool(output.informative.any())
            self.epsilon.update(difference, not difference and self._loss_is_positive(output, cost))

    def _loss_is_positive(self, output: DirectOutput, cost: Tensor) -> bool:
        """Whether some instance's loss is above the smallest that its structures allow.

        Compared with the best structure, not with zero: ``<cost, y>`` lacks the loss's constant.
        """
        ones = self.structure.ones_along(-cost, cost, (0.0,))[0]
        smallest = _at(cost, ones, self.structure.entry_dims).sum(-1)
        return bool((output.loss > smallest + 1e-6 * (1 + smallest.abs())).any())

    def extra_repr(self) -> str:
        fixed = "" if isinstance(self.epsilon, AdaptiveEpsilon) else f"epsilon={self.epsilon:g}, "
        return f"{self.structure!r}, {fixed}sides={self.sides!r}, noise={self.noise!r}, samples={self.samples}"
