"""Training of the sorting experiment.

Ten sequences of d uniform numbers; a net scores every (number, position) pair; the prediction is the best matching.
All repetitions of a cell are trained together: parameters, data, noise, epsilon and early stopping have a leading
axis R, so that one solver call serves them all.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from directloss import costs
from directloss.experiments.methods import call_own
from directloss.experiments.sorting import FOUND, Config
from directloss.lab.experiment import Context
from directloss.layers.sinkhorn import sinkhorn
from directloss.losses.criterion import DirectLoss
from directloss.losses.direct import evaluate_direct
from directloss.losses.growth import GrowingEpsilon
from directloss.nets import SortingNet, SortingScale
from directloss.noise import Gumbel, Noise
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
        self.scale_net = SortingScale(size, stack=(count,))
        for module, make in ((self.net, SortingNet), (self.scale_net, SortingScale)):
            each = [make(size, generator=generator).state_dict() for generator in self.generators]
            module.load_state_dict({name: torch.stack([state[name] for state in each]) for name in each[0]})
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=config.learning_rate)
        self.scale_optimizer = torch.optim.SGD(self.scale_net.parameters(), lr=config.scale_learning_rate)
        self.epsilon = GrowingEpsilon(abs(config.epsilon), config.growth, config.limit, shape=(count,))
        self.criteria = [_criterion(config) for _ in self.repetitions]
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

    def step(self, epoch: int) -> "Step":
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
        known = dict.fromkeys(("direct0", "direct1", "dsl"), self._direct_step)
        step = (known | {"gumbel-sinkhorn": self._sinkhorn_step}).get(config.method, self._step_of_each)()
        self.optimizer.step()
        if config.method == "dsl":
            self.scale_optimizer.step()
        return step

    def _direct_step(self) -> "Step":
        config = self.config
        scores = self.net(self.train)
        scale: float | Tensor = (
            self.scale_net(self.train) if config.method == "dsl" else float(config.method == "direct1")
        )
        noise = Gumbel() if config.method == "direct0" else self._noise(Gumbel(config.noise_variance))
        # Each repetition has its own epsilon: fold its size into the cost, and its sign into the step.
        output = evaluate_direct(
            scores,
            self.cost * self.epsilon.value.float()[:, None, None, None],
            Matching(),
            epsilon=1.0 if config.epsilon > 0 else -1.0,
            sides=config.sides,
            scale=scale,
            noise=noise,
            samples=1 if config.method == "direct0" else config.samples,
            reduction="none",
        )
        # The released program's gradient: y_eps - y, summed over samples and sequences, without 1 / eps.
        y = output.vertices[0]
        (output.loss.sum() * y.slots.shape[1]).backward()
        right = y.at(self.target)
        self.epsilon.update(output.informative().any(-1), ~right[0].bool().flatten(2).all(-1).all(0))
        return Step(
            error=y.select(0).inner(self.squared).mean((0, 2)),
            right=right.mean((1, 3, 4)),
            scale=scale.detach().mean(-1) if isinstance(scale, Tensor) else torch.full((len(self.train),), scale),
        )

    def _sinkhorn_step(self) -> "Step":
        config = self.config
        scores = self.net(self.train)
        noise = self._noise(Gumbel())
        relaxed = sinkhorn(scores + noise, Matching(), config.temperature, config.iterations)
        # Position j receives the mixture sum_i P_ij x_i, which should be the j-th largest number.
        received = torch.einsum("srbij,rbi->srbj", relaxed, self.train)
        target = self.train.sort(-1, descending=True).values
        error = (received - target).square().sum(-1).mean((0, 2))
        error.sum().backward()
        right = (relaxed.detach().argmax(-1) == self.ranks).float().mean((0, 2, 3))
        return Step(error=error.detach(), right=right.unsqueeze(0), scale=torch.ones(len(self.train)))

    def _step_of_each(self) -> "Step":
        """A loss that keeps a state, or the user's own: one repetition at a time."""
        scores = self.net(self.train)
        losses = [
            criterion(each, cost, structure=Matching(), generator=generator)
            for criterion, each, cost, generator in zip(self.criteria, scores, self.cost, self.generators, strict=True)
        ]
        torch.stack(losses).sum().backward()
        columns = Matching().solve(scores.detach()).argmax(-1)
        error = self.squared.gather(-1, columns.unsqueeze(-1)).squeeze(-1).sum(-1).mean(-1)
        right = (columns == self.ranks).float().mean((1, 2))
        return Step(error=error, right=right.unsqueeze(0), scale=torch.tensor([scale for scale, _ in self.found()]))

    def found(self) -> list[tuple[float, float]]:
        """Scale and epsilon of the better side of criteria that find them; the user's own have no scale."""
        if self.config.method not in FOUND:
            return [(0.0, epsilon) for epsilon in self.epsilon.value.tolist()]
        return [criterion.found.settings()[:2] for criterion in self.criteria]

    def _noise(self, noise: Noise) -> Tensor:
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


@dataclass(frozen=True)
class Step:
    """What one step saw, for each repetition."""

    error: Tensor  # (R,), squared error of the noisy training prediction
    right: Tensor  # (T, R), share of rightly placed entries of y, y_eps, ...
    scale: Tensor  # (R,)


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
                        "final_epsilon": stack.found()[index][1],
                    },
                )
            if not (stack.live & ~stops).any():
                return
            stack.keep(~stops)


def _criterion(config: Config) -> Any:
    """A loss that is called for one repetition at a time."""
    if config.method in FOUND:
        return DirectLoss(Matching(), sides=FOUND[config.method], samples=config.samples)
    return partial(call_own, config.method)


@cache
def _compile_kernels(method: str) -> None:
    """Take one small step, so that no repetition's time includes a compiler's."""
    if ":" not in method:
        Stack(Config(method, 2, sequences=1), [0]).step(0)


def _shrink(module: torch.nn.Module, optimizer: torch.optim.Optimizer, index: Tensor) -> None:
    """Keep the copies ``index`` of a stacked module, with the optimiser's memory of them."""
    for part in module.modules():
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
