"""Task losses that are functions of the structure, not linear coefficients."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from directloss.parts import Scores, Vertices
from directloss.structures.base import Structure
from directloss.structures.certificate import WrongMaximizerError
from directloss.transforms import inside_transform

Cost = Tensor | Callable[[Tensor], Tensor]
Augmented = Callable[[Scores, float | Tensor], Tensor]

# As for a structure's own certificate: relative to the sum of |theta| |y|.
_TOLERANCE = 1e-5


def task_loss(cost: Callable[[Tensor], Tensor], y: Tensor, batch: torch.Size) -> tuple[Tensor, Tensor | None]:
    """The loss of structures y (S, B..., *E), (S, B...), and its gradient there; None if it carries none.

    The function sees one sample at a time, so that it need not know of samples.
    """
    values, gradients = [], []
    with torch.enable_grad():
        for one in y:
            leaf = one.detach().requires_grad_()
            value = cost(leaf)
            if not isinstance(value, Tensor) or value.shape != batch:
                got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"cost returned {got}, expected one loss for each instance, {tuple(batch)}")
            values.append(value.detach().to(y.dtype))
            if value.requires_grad:
                gradients.append(torch.autograd.grad(value.sum(), leaf)[0])
    return torch.stack(values), torch.stack(gradients) if len(gradients) == len(values) else None


def check_function(cost: Cost) -> Callable[[Tensor], Tensor]:
    """The cost itself. Raise unless it is a function that can be called here."""
    if not callable(cost):
        raise TypeError(f"cost is {type(cost).__name__}, expected a tensor, or a function of the structure")
    if inside_transform():
        raise ValueError("a cost that is a function cannot be used inside torch.func; give a tensor of coefficients")
    return cost


def solve_task(
    cost: Callable[[Tensor], Tensor],
    augmented: Augmented | None,
    structure: Structure,
    theta: tuple[Tensor, ...],
    steps: Sequence[float],
    epsilon: Tensor | None,
) -> tuple[Tensor, tuple[Vertices, ...]]:
    """The mean loss of y over the samples, (B...), and y with the solutions ahead and behind, (T, S, B..., K).

    theta is (S, B..., *E) and further parts; with epsilon (B...), the steps are in its units.
    """
    y = structure.vertices_along(theta, None, (0.0,))
    dense = y[0].select(0).dense(theta[0].dtype)
    loss, gradient = task_loss(cost, dense, dense.shape[1 : dense.dim() - structure.entry_dims])
    if len(steps) == 1:
        return loss.mean(0), y
    if augmented is not None:
        at = [step if epsilon is None else step * epsilon for step in steps[1:]]
        return loss.mean(0), _solve_augmented(augmented, cost, structure, theta, at, dense, loss)
    if gradient is None:
        raise ValueError(
            "cost is a function whose result carries no gradient, so that it cannot be linearised at y; compute it by "
            "differentiable operations, or pass augmented=, your own maximiser of <theta, y> + epsilon * cost(y)"
        )
    if epsilon is not None:
        gradient = (gradient * epsilon[(..., *[None] * structure.entry_dims)]).to(gradient.dtype)
    return loss.mean(0), structure.vertices_along(theta, gradient, steps)


def _solve_augmented(
    augmented: Augmented,
    cost: Callable[[Tensor], Tensor],
    structure: Structure,
    theta: tuple[Tensor, ...],
    steps: Sequence[float | Tensor],
    y: Tensor,
    loss: Tensor,
) -> tuple[Vertices, ...]:
    """y (S, B..., *E) and what the user's own loss-augmented maximiser returns for each step, (T, S, ...)."""
    first, *factors = theta
    answers = [y]
    for step in steps:
        each = []
        for one in first:
            answer = augmented((one, *factors) if factors else one, step)
            if not isinstance(answer, Tensor) or answer.shape != one.shape:
                got = f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
                raise ValueError(
                    f"augmented returned {got}, expected a structure for each instance, {tuple(one.shape)}"
                )
            each.append(answer.detach().to(y))
        answers.append(torch.stack(each))
    stacked = torch.stack(answers)
    parts = [structure.complete(answer, (answer, *factors)) for answer in stacked]
    vertices = tuple(stack([found[index] for found in parts]) for index in range(len(theta)))
    _certify(cost, structure, theta, steps, stacked, loss, vertices)
    return vertices


def stack(each: Sequence[Vertices]) -> Vertices:
    """Vertices one after another along a new leading axis."""
    positions = [v.positions for v in each if v.positions is not None]
    values = [v.values for v in each if v.values is not None]
    return Vertices(
        each[0].entries, torch.stack(positions) if positions else None, torch.stack(values) if values else None
    )


def _certify(
    cost: Callable[[Tensor], Tensor],
    structure: Structure,
    theta: tuple[Tensor, ...],
    steps: Sequence[float | Tensor],
    answers: Tensor,
    loss: Tensor,
    vertices: tuple[Vertices, ...],
) -> None:
    """The free certificate: y_eps beats y for ``<theta, y> + eps loss(y)``, and y beats y_eps for ``<theta, y>``."""
    plain = torch.stack([v.inner(part) for v, part in zip(vertices, theta, strict=True)]).sum(0)
    size = torch.stack([v.inner(part.abs()).abs() for v, part in zip(vertices, theta, strict=True)]).sum(0).amax(0)
    for index, step in enumerate(steps, start=1):
        moved = task_loss(cost, answers[index], loss.shape[1:])[0]
        gain = (plain[index] - plain[0]) + (moved - loss) * step
        slack = _TOLERANCE * (size + (moved.abs() + loss.abs()) * torch.as_tensor(step).abs())
        for short, what in ((-gain, f"augmented at epsilon = {step}"), (plain[index] - plain[0], repr(structure))):
            if (short > slack).any():
                raise WrongMaximizerError(
                    f"{what} did not maximise: the other answer is better by up to {short.max().item():.6g}"
                )
