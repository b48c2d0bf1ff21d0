"""Train one net through a decision with one rule, and judge it after every epoch."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from directloss.lab.methods import METHODS, Criterion, Method, Step
from directloss.lab.problem import Instances, Problem

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Plan:
    """How long and how fast. All rules get the same."""

    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    epochs: int = 20
    seconds: float | None = None  # of training, instead of epochs
    batch: int = 32
    warm_start: int = 0  # epochs of least squares before the rule's own
    scores: float = 1.0  # times the initial ones: the last layer's parameters are multiplied by it
    rate_end: float = 1.0  # the share of the learning rate that is left in the end; it falls linearly, epoch by epoch


def fit(
    problem: Problem, method: Method, plan: Plan, seed: int, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """What a row of the results keeps: the metrics of the chosen epoch, the epochs' course, and seconds.

    The seed draws the net, the order of the instances and, apart from these, the rule's noise: rules that are compared
    under one seed start from the same net and see the same batches.
    """
    if method.kind in ("target", "pool"):
        problem = problem.with_targets()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = problem.net()
    _enlarge(net, plan.scores)
    order, noise = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(2**31 + seed)
    optimizer = plan.optimizer(net.parameters())
    rates = [group["lr"] for group in optimizer.param_groups] if plan.rate_end < 1 else []
    step = method.start(problem.structure_of(problem.train[: plan.batch]), problem.train.target)
    warm = METHODS["least-squares"].start(problem.structure_of(problem.train[:1]))
    (first, metric), *_ = problem.metrics.items()
    sign = -1 if metric.higher else 1
    spent, epoch, kept, course = 0.0, 0, {}, []  # type: float, int, dict[str, Any], list[dict[str, float]]
    best, done = float("inf"), 0.0
    while done < 1:
        start = time.perf_counter()
        for group, rate in zip(optimizer.param_groups, rates, strict=False):
            group["lr"] = rate * (1 - done * (1 - plan.rate_end))
        net.train()
        rule = warm if epoch < plan.warm_start else step
        limit = None if plan.seconds is None else start + plan.seconds - spent
        _epoch(net, optimizer, rule, problem, plan.batch, order, noise, limit)
        spent += time.perf_counter() - start
        epoch += 1
        net.eval()
        found = problem.judge(net, problem.test)
        chosen_by = problem.judge(net, problem.validation)[first] if problem.validation else None
        value = -float(epoch) if chosen_by is None else sign * chosen_by.mean().item()
        course.append({first: found[first].mean().item(), **(step.state() if isinstance(step, Criterion) else {})})
        if value < best or not kept:
            best = value
            kept = {"metrics": problem.described(found), "epoch": epoch}
        done = epoch / plan.epochs if plan.seconds is None else spent / plan.seconds
        progress(min(1.0, done), f"{first} {course[-1][first]:.4g}")
    return {**kept, "epochs": epoch, "seconds": spent, "course": course}


def _epoch(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    rule: Step,
    problem: Problem,
    size: int,
    order: torch.Generator,
    noise: torch.Generator,
    limit: float | None,
) -> None:
    """Every training instance once, or those that the time allows."""
    for which in torch.randperm(len(problem.train), generator=order).split(size):
        if limit is not None and time.perf_counter() > limit:
            return
        batch: Instances = problem.train[which]
        loss = rule(net(batch.features), batch, problem.structure_of(batch), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def _enlarge(net: nn.Module, factor: float) -> None:
    """Multiply the scores of a net whose last layer is linear."""
    if factor == 1:
        return
    layers = [module for module in net.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    for parameter in layers[-1].parameters():
        parameter.mul_(factor)
