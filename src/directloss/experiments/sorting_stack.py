"""Training of the sorting experiment.

Ten sequences of d uniform numbers; a net scores every (number, position) pair; the prediction is the best matching.
All repetitions of a cell are trained together: parameters, data, noise, epsilon and early stopping have a leading
axis R, so that one solver call serves them all.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from directloss import costs
from directloss.experiments.sorting import Config
from directloss.experiments.sorting_methods import Step, make_criterion, take_step
from directloss.lab.experiment import Context
from directloss.losses.growth import GrowingEpsilon
from directloss.nets import OneScale, SortingNet, SortingScale
from directloss.noise import Noise
from directloss.structures.matching import Matching


class Stack:
    """Repetitions in training: everything that belongs to one has index r on its first axis.

    A repetition's bits do not depend on the others, as long as there are others: torch reduces a batch of one in
    another order. So a last one keeps a companion, which is not live: it is trained and never reported.
    """

    def __init__(self, config: Config, repetitions: Sequence[int]):
        self.config = config
        self.repetitions = [*repetitions, *repetitions][: max(2, len(repetitions))]
        self.live = torch.arange(len(self.repetitions)) < len(repetitions)
        self.generators = [_generator(config, repetition) for repetition in self.repetitions]
        count, size = len(self.repetitions), config.size
        self.train = self._draw(config.sequences)
        self.test = self._draw(1)
        self.net = SortingNet(size, stack=(count,))
        self.scale_net: nn.Module = SortingScale(size, stack=(count,))
        for module, make in ((self.net, SortingNet), (self.scale_net, SortingScale)):
            each = [make(size, generator=generator).state_dict() for generator in self.generators]
            module.load_state_dict({name: torch.stack([state[name] for state in each]) for name in each[0]})
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=config.learning_rate)
        self.scale_optimizer: torch.optim.Optimizer = torch.optim.SGD(
            self.scale_net.parameters(), lr=config.scale_learning_rate
        )
        self.epsilon = GrowingEpsilon(abs(config.epsilon), config.growth, config.limit, shape=(count,))
        self.criteria = [make_criterion(config) for _ in self.repetitions]
        if config.finds:
            first = self.net(self.train).detach().flatten(1)
            self.scale_net = OneScale(config.scale_start * first.std(-1))
            self.scale_optimizer = torch.optim.Adam(self.scale_net.parameters(), lr=config.scale_learning_rate)
        self.best = torch.full((count,), torch.inf)
        self.waited = torch.zeros(count, dtype=torch.int64)
        self.seconds = torch.zeros(count, dtype=torch.float64)
        self.drawn = torch.empty(0, 0, count)  # noise of the next steps, (steps, S, R, B, n, n)
        self._prepare()

    def _draw(self, sequences: int) -> Tensor:
        return torch.stack([torch.rand(sequences, self.config.size, generator=g) for g in self.generators])

    def _prepare(self) -> None:
        """What follows from the training sequences: where each number belongs, and what misplacing it costs."""
        x = self.train
        self.ranks = x.argsort(-1, descending=True).argsort(-1)
        self.target = torch.nn.functional.one_hot(self.ranks, x.shape[-1]).to(x.dtype)
        self.squared = costs.squared_error(x, x.sort(-1, descending=True).values)
        self.cost = {
            "hamming": lambda: costs.hamming(self.target),
            "squared-error": lambda: self.squared,
            "weighted-row": lambda: costs.weighted_hamming(x, self.target, by="row"),
            "weighted-column": lambda: costs.weighted_hamming(x, self.target, by="column"),
            "rank-distance": lambda: costs.rank_distance(x, descending=True) / x.shape[-1],
            "rank-distance-squared": lambda: costs.rank_distance(x, descending=True, power=2.0) / x.shape[-1],
        }[self.config.cost]()

    def keep(self, staying: Tensor) -> None:
        """Drop the repetitions that are done."""
        self.live = self.live & staying
        index = self.live.nonzero().squeeze(-1)
        if len(index) == 1:
            index = torch.cat([index, (index + 1) % len(self.live)])
        self.repetitions = [self.repetitions[i] for i in index]
        self.generators = [self.generators[i] for i in index]
        self.criteria = [self.criteria[i] for i in index]
        for name in ("train", "test", "ranks", "target", "squared", "cost", "best", "waited", "seconds", "live"):
            setattr(self, name, getattr(self, name)[index])
        self.epsilon.value = self.epsilon.value[index]
        self.drawn = self.drawn[:, :, index]
        _shrink(self.net, self.optimizer, index)
        _shrink(self.scale_net, self.scale_optimizer, index)

    def step(self, epoch: int) -> Step:
        """One full-batch step of every repetition."""
        config = self.config
        if config.fresh and epoch:
            self.train = self._draw(config.sequences)
            self._prepare()
        if config.decay:
            for group in self.optimizer.param_groups:
                group["lr"] = config.learning_rate * (1 - epoch / config.max_epochs)
        self.optimizer.zero_grad()
        self.scale_optimizer.zero_grad()
        step = take_step(self)
        self.optimizer.step()
        if config.method == "dsl":
            self.scale_optimizer.step()
        if config.method == "annealed" and isinstance(self.scale_net, OneScale):
            self.scale_net.anneal((epoch + 1) / config.max_epochs, config.scale_end / config.scale_start)
        return step

    def noise(self, noise: Noise) -> Tensor:
        """Draws (S, R, B, n, n) in which each repetition uses its own generator, whoever it is trained with.

        Small ones are drawn for several steps at once: a call costs as much as some thousand numbers.
        """
        if not len(self.drawn):
            config = self.config
            one = (config.samples, config.sequences, config.size, config.size)
            steps = max(1, 32_000 // math.prod(one))
            drawn = torch.empty(steps, config.samples, len(self.generators), *one[1:])
            for index, generator in enumerate(self.generators):
                noise.fill(drawn[:, :, index].flatten(0, 1), generator)
            self.drawn = drawn
        now, self.drawn = self.drawn[0], self.drawn[1:]
        return now

    @torch.no_grad()
    def evaluate(self) -> list[dict[str, Any]]:
        """The test of every repetition: its fresh sequence, sorted without noise.

        In float64: numbers closer than a millionth, which long sequences have, tie in float32 scores. Equal numbers
        may stand in either order.
        """
        net, test = copy.deepcopy(self.net).double(), self.test.double()
        predicted = Matching().solve(net(test)).argmax(-1).squeeze(1)
        placed = test.squeeze(1).gather(-1, predicted.argsort(-1))
        wrong = (placed != placed.sort(-1, descending=True).values).double().mean(-1)
        one, two = torch.triu_indices(self.config.size, self.config.size, 1)
        tau = 2 * (placed[:, one] >= placed[:, two]).double().mean(-1) - 1
        return [
            {"perfect": w == 0.0, "wrong": w, "kendall_tau": t}
            for w, t in zip(wrong.tolist(), tau.tolist(), strict=True)
        ]


def train(
    config: Config,
    repetitions: Sequence[int],
    context: Context = Context(),
    on_step: Callable[[Step], None] = lambda step: None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Train repetitions together; yield (repetition, result) as each stops."""
    _compile_kernels(config.method)
    stack = Stack(config, repetitions)
    for epoch in range(1, config.max_epochs + 1):
        start = time.perf_counter()
        step = stack.step(epoch - 1)
        on_step(step)
        context.progress(epoch / config.max_epochs, "")
        improved = step.error < stack.best
        stack.best = torch.where(improved, step.error, stack.best)
        stack.waited = torch.where(improved, 0, stack.waited + 1)
        stack.seconds += (time.perf_counter() - start) / len(stack.repetitions)
        stops = stack.live & (
            (epoch == config.max_epochs) | ((stack.waited >= config.patience) & (config.patience > 0))
        )
        if stops.any():
            tests = stack.evaluate()
            for index in stops.nonzero().squeeze(-1).tolist():
                yield (
                    stack.repetitions[index],
                    {
                        **tests[index],
                        "epochs": epoch,
                        "seconds": stack.seconds[index].item(),
                        "training_error": step.error[index].item(),
                        "sigma": step.scale[index].item(),
                        "final_epsilon": step.epsilon[index].item(),
                    },
                )
            if not (stack.live & ~stops).any():
                return
            stack.keep(~stops)


@cache
def _compile_kernels(method: str) -> None:
    """Take one small step, so that no repetition's time includes a compiler's."""
    if ":" not in method:
        Stack(Config(method, 2, sequences=1, finds=method in ("annealed", "handsfree")), [0]).step(0)


def _shrink(module: torch.nn.Module, optimizer: torch.optim.Optimizer, index: Tensor) -> None:
    """Keep the copies ``index`` of a stacked module, with the optimiser's memory of them."""
    for part in module.modules():
        for name, kept in list(part.named_buffers(recurse=False)):
            setattr(part, name, kept[index])
        for name, old in list(part.named_parameters(recurse=False)):
            new = torch.nn.Parameter(old.detach()[index])
            setattr(part, name, new)
            state = optimizer.state.pop(old, {})
            optimizer.state[new] = {
                key: value[index] if isinstance(value, Tensor) and value.dim() else value
                for key, value in state.items()
            }
            for group in optimizer.param_groups:
                group["params"] = [new if parameter is old else parameter for parameter in group["params"]]


def _generator(config: Config, repetition: int) -> torch.Generator:
    """A repetition's own randomness; the same for every method and recipe, so that they meet the same data."""
    seed = np.random.SeedSequence([config.seed, config.size, repetition]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed) >> 1)
