"""How an audit calls a loss or a layer: each by its own convention, with the settings that its signature names."""

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from directloss.losses.task import Cost
from directloss.parts import Scores, as_parts
from directloss.structures.base import Structure

_CHUNK = 4_000_000


def accepted(rule: Callable[..., Tensor], settings: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that the rule's signature names, and that no ``functools.partial`` has fixed."""
    parameters = inspect.signature(rule).parameters.values()
    fixed = rule.keywords if isinstance(rule, functools.partial) else {}
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in settings.items() if name not in fixed and (takes_all or name in names)}


def check_settings(rule: Callable[..., Tensor], settings: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The settings. Raise ValueError unless the rule takes each of them."""
    unknown = [name for name in settings if not accepted(rule, {name: None})]
    if unknown:
        taken = ", ".join(inspect.signature(rule).parameters)
        raise ValueError(f"settings has {unknown[0]!r}, which the rule does not take; its arguments are {taken}")
    for name, values in settings.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise TypeError(f"settings[{name!r}] is {values!r}, expected a list of values")
    return dict(settings)


def _as_loss(rule: Callable[..., Tensor], scores: Scores, cost: Cost, structure: Structure) -> Callable[..., Tensor]:
    """The rule as a function of scores and settings that returns losses. Its second argument's name says what it is."""
    names = list(inspect.signature(rule).parameters)
    second = names[1] if len(names) > 1 else ""
    if second == "structure":
        axes = tuple(range(-structure.entry_dims, 0))

        def behind(scores: Scores, **settings: Any) -> Tensor:
            y = rule(scores, structure, **settings)
            return (y * cost).sum(axes) if isinstance(cost, Tensor) else cost(y)

        return behind
    supervision = best_structure(scores, cost, structure) if second == "target" else cost
    return lambda scores, **settings: rule(scores, supervision, structure, **settings)


def best_structure(scores: Scores, cost: Cost, structure: Structure) -> Tensor:
    """The structure of one instance with the smallest cost, (*E): the target of a loss that wants one."""
    every = structure.enumerate(scores)
    losses = (every * cost).flatten(1).sum(1) if isinstance(cost, Tensor) else cost(every)
    return every[losses.argmin()]


def estimate(
    rule: Callable[..., Tensor],
    scores: Scores,
    cost: Cost,
    structure: Structure,
    scale: float,
    settings: dict[str, Any],
    repetitions: int,
) -> Iterator[tuple[dict[str, Tensor], float]]:
    """Independent estimates of the gradient to each part of the scores and, where the rule takes a scale, to the scale,
    in portions: (R, -1) each; and the seconds that they took."""
    call = _as_loss(rule, scores, cost, structure)
    parts, entries = as_parts(scores), structure.fit(as_parts(scores))[0]
    first = parts[0]
    samples = settings["samples"] if isinstance(settings.get("samples"), int) else 1
    size = min(repetitions, max(1, _CHUNK // (first.numel() * samples)))
    for begin in range(0, repetitions, size):
        count = min(size, repetitions - begin)
        inputs = {}
        for index, (part, own) in enumerate(zip(parts, entries, strict=True)):
            # Each repetition has a part of its own, with as many axes as the entries, so that gradients stay apart.
            alone = part.detach().reshape(*[1] * (len(own) - part.dim()), *part.shape)
            name = f"part {index}" if index else "scores"
            inputs[name] = alone.expand(count, *alone.shape).clone().requires_grad_()
        given, scales = dict(settings), torch.full((count,), scale, dtype=first.dtype, device=first.device)
        if accepted(rule, {"scale": scale}):
            inputs["scale"] = given["scale"] = scales.requires_grad_()
        leaves = tuple(tensor for name, tensor in inputs.items() if name != "scale")
        start = time.perf_counter()
        value = _checked(call(leaves if len(leaves) > 1 else leaves[0], **given), count)
        gradients = torch.autograd.grad(value, list(inputs.values()), allow_unused=True)
        seconds = time.perf_counter() - start
        estimates = {
            target: (torch.zeros_like(tensor) if gradient is None else gradient).detach().double().reshape(count, -1)
            for (target, tensor), gradient in zip(inputs.items(), gradients, strict=True)
        }
        yield estimates, seconds


def _checked(loss: Any, count: int) -> Tensor:
    """The sum over the instances. Raise ValueError unless it is a differentiable loss of so many."""
    if not isinstance(loss, Tensor) or loss.shape not in ((count,), ()):
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(
            f"the loss returned {got} for {count} instances; expected one for each, ({count},), or their mean"
        )
    if not loss.requires_grad:
        raise ValueError(
            "the loss carries no gradient: it must depend on the scores through differentiable operations or a "
            "torch.autograd.Function (was something detached, or computed under no_grad?)"
        )
    return loss.sum() if loss.dim() else loss * count
