"""k nearest neighbours on images: tables 3 and 4 of the paper.

A net embeds images; a query's scores are its negative distances to the candidates; the prediction is the k nearest,
and the loss is the share of them with another label. A step has two halves: from the embeddings to the gradient of the
loss with respect to them, and from there back through the net, which images without a gradient can be spared.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from directloss import costs, nets
from directloss.errors import UserError
from directloss.experiments.images import Images, accuracy, augment, embed
from directloss.experiments.parallel import Ranks
from directloss.files import open_atomically
from directloss.layers.neuralsort import neuralsort
from directloss.layers.relaxed_subset import relaxed_subset
from directloss.losses.criterion import DirectLoss
from directloss.losses.direct import Sides
from directloss.losses.epsilon import AdaptiveEpsilon
from directloss.neighbors.distance import negative_distance, without_diagonal
from directloss.noise import Gumbel
from directloss.perturbation import perturb
from directloss.runs import code_version, config_hash
from directloss.structures.subset import Subset

METHODS = ("direct0", "direct1", "dsl", "neuralsort", "neuralsort-stochastic", "relaxsubsample")


@dataclass(frozen=True)
class Config:
    """Every choice of a cell. The defaults are the paper's."""

    data: str
    method: str  # of METHODS
    k: int
    net: str = "lenet"  # of nets.IMAGE_NETS
    width: int = 32  # of a resnet9
    norm: str = "batch"  # of a resnet; or group
    recipe: str = "paper"
    seed: int = 0
    # training
    epochs: int = 220  # each is one pass over the candidates
    candidates: int = 800  # in a batch
    queries: int = 100  # in a batch, besides; 0: every candidate is a query of all others
    validation: int = 5000  # images kept from training, to choose the epoch
    bank: int = 10_000  # training images that vote in validation; in the test all do
    augment: str = "none"  # or shift, flip, or shift-flip
    optimizer: str = "adam"  # of _OPTIMIZERS
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    decay: bool = False  # linearly to zero
    sparse: bool = False  # no backward pass for images without a gradient; exact for nets without batch statistics
    # direct loss
    cost: str = "label-distance"  # or wrong-label
    sides: Sides = "one"
    epsilon: float = -0.1
    limit: float = 0.9999
    samples: int = 1
    noise_variance: float = Gumbel.standard_variance
    scale_input: str = "image"  # of a net of its own, or embedding: of one more layer
    scale_optimizer: str = "sgd"
    scale_learning_rate: float = 1e-6
    # relaxations
    temperature: float = 16.0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; expected of {METHODS}")
        if self.net not in nets.IMAGE_NETS:
            raise ValueError(f"net is {self.net!r}; expected of {tuple(nets.IMAGE_NETS)}")
        if self.sparse and self.net != "lenet" and self.norm == "batch":
            raise ValueError("sparse is exact for nets without batch statistics only; give norm='group'")

    def check(self, images: int, ranks: int = 1) -> None:
        """Raise where so many training images and processes cannot make a batch."""
        if self.candidates + self.queries > images:
            raise UserError(
                f"a batch of {self.candidates} candidates and {self.queries} queries needs more images than the "
                f"{images} that {self.data} has for training; give fewer --candidates or --queries"
            )
        most = self.candidates // ranks * ranks - (self.queries == 0)
        if not 1 <= self.k <= most:
            raise UserError(
                f"--k has {self.k}, but a batch has {self.candidates} candidates; expected 1 to {most}, "
                "or give more --candidates"
            )
        if 0 < self.queries < ranks:
            raise UserError(f"--queries is {self.queries}, but there are {ranks} processes; expected {ranks} or more")


def paper(data: str, method: str, k: int, net: str, seed: int) -> Config:
    """The paper's recipe; for the relaxations that of NeuralSort's authors, which it follows."""
    colour = data == "cifar-10"
    make = partial(Config, data, method, k, net, seed=seed, candidates=600 if colour else 800)
    if method.startswith("d"):
        return make(epsilon=-0.2 if colour else -0.1, samples=1 if k > 1 or method == "direct0" else 5)
    return make(
        optimizer="momentum",
        weight_decay=5e-4,
        samples=1 if method == "neuralsort" else 5,
        temperature=1.0 if method == "relaxsubsample" else 64.0 if colour else 16.0,
    )


def best(data: str, method: str, k: int, net: str, seed: int) -> Config:
    """What two cores learn best from in minutes: every image is a query, a falling rate, varied images."""
    direct = method.startswith("d")
    make = partial(
        Config,
        data,
        method,
        k,
        net,
        width=16,
        recipe="best",
        seed=seed,
        queries=0,
        augment={"digits": "none", "mnist": "shift"}.get(data, "flip"),
        decay=True,
        cost="wrong-label",
        sides="both",
        epsilon=float(k),
        limit=100.0 * k,
        scale_input="embedding",
        scale_optimizer="adam",
    )
    if net == "lenet":
        return make(
            # In the same time: a relaxation has more to compute, and a direct loss spares half of the backward passes.
            epochs=24 if direct else 12,
            candidates=500,
            sparse=direct,
            noise_variance=0.03,
            scale_learning_rate=1e-3,
            temperature=1.0 if method == "relaxsubsample" else 16.0,
        )
    make = partial(
        make,
        epochs={"fashion-mnist": 14, "cifar-10": 24}.get(data, 16),
        candidates=250,
        learning_rate=3e-3 if data == "cifar-10" else 8e-3,
        weight_decay=1e-4,
        # At k = 1 a draw moves two candidates at most.
        samples=1 if method == "neuralsort" else 20 if direct and k == 1 else 5,
        noise_variance=0.2,
        scale_learning_rate=1e-5,
        temperature=1.0 if method == "relaxsubsample" else 256.0 if data == "cifar-10" else 64.0,
    )
    if direct and data == "cifar-10":
        # Far to the better side lie the nearest of the right label, however far they are themselves. Without noise the
        # embeddings fall into one point.
        return make(sides="one", epsilon=-10.0 * k, samples=20, noise_variance=0.5)
    return make()


RECIPES: dict[str, Callable[[str, str, int, str, int], Config]] = {"paper": paper, "best": best}


_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}


class Training:
    """A net in training, with all that has to be saved to go on exactly."""

    def __init__(self, config: Config, images: Images, ranks: Ranks):
        config.check(len(images.train), ranks.count)
        self.config, self.images, self.ranks = config, images, ranks
        self.generator = torch.Generator().manual_seed(config.seed)
        channels, size = images.train.shape[1], images.train.shape[-1]
        options: dict[str, Any] = {} if config.net == "lenet" else {"norm": config.norm}
        options |= {"width": config.width} if config.net == "resnet9" else {}
        self.net = nets.IMAGE_NETS[config.net](channels, size, generator=self.generator, **options)
        self.scale_net: nn.Module
        if config.scale_input == "embedding":
            width = embed(self.net, images, images.train[:1]).shape[1]
            self.scale_net = nets.LinearScale(width, generator=self.generator)
        else:
            make_scale = nets.LeNetScale if 16 <= size < 32 else nets.ConvScale
            self.scale_net = make_scale(channels, size, generator=self.generator)
        self.train_net, self.train_scale_net = ranks.wrap(self.net), ranks.wrap(self.scale_net)
        self.optimizer = _OPTIMIZERS[config.optimizer](
            self.net.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.scale_optimizer = _OPTIMIZERS[config.scale_optimizer](
            self.scale_net.parameters(), lr=config.scale_learning_rate
        )
        self.epsilon = AdaptiveEpsilon(config.epsilon, limit=config.limit)
        self.criterion = DirectLoss(
            Subset(config.k),
            epsilon=self.epsilon,
            sides=config.sides,
            noise=Gumbel(config.noise_variance),
            samples=1 if config.method == "direct0" else config.samples,
        )
        self.epoch = 0
        self.commits: list[str] = []  # whose code trained it
        self.curve: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"accuracy": -1.0}

    def run_epoch(self, on_step: Callable[[int, int], None] = lambda done, total: None) -> dict[str, float]:
        """One pass over the candidates; return the means of what its steps saw."""
        config, start = self.config, time.perf_counter()
        self.net.train()
        seen = []
        batches = list(self.batches())
        for index, (candidates, queries) in enumerate(batches):
            if config.decay:
                done = (self.epoch + index / len(batches)) / config.epochs
                for group in self.optimizer.param_groups:
                    group["lr"] = config.learning_rate * (1 - done)
            seen.append(self.step(candidates, queries))
            on_step(index + 1, len(batches))
        self.epoch += 1
        self.commits = list(dict.fromkeys([*self.commits, code_version()]))
        self.ranks.agree(self.epsilon.value)
        seconds = time.perf_counter() - start
        asked = sum(len(queries) if config.queries else len(candidates) for candidates, queries in batches)
        means = {name: sum(step[name] for step in seen) / len(seen) for name in seen[0]}
        return {**means, "seconds": seconds, "seconds_per_query": seconds / asked}

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices of candidates and of queries, disjoint."""
        config = self.config
        order = torch.randperm(len(self.images.train), generator=self.generator)
        size = config.candidates
        twice = torch.cat([order, order])
        for first in range(0, len(order) - size + 1, size):
            yield twice[first : first + size], twice[first + size : first + size + config.queries]

    def step(self, candidates: Tensor, queries: Tensor) -> dict[str, float]:
        """One step on a batch: from the embeddings to their gradient, and from there back through the net."""
        config, ranks = self.config, self.ranks
        candidates, queries = ranks.share(candidates), ranks.share(queries)
        index = torch.cat([candidates, queries])
        generator = ranks.own(self.generator)
        inputs = self.images.normalize(augment(self.images.train[index], config.augment, generator))
        labels = self.images.train_labels[index]
        with torch.set_grad_enabled(not config.sparse):
            embedded = (self.net if config.sparse else self.train_net)(inputs)
        leaf = embedded.detach().requires_grad_()
        loss, sigma = self._loss(leaf, labels, len(candidates), inputs, generator)
        loss.backward()
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        self.optimizer.zero_grad()
        active = gradient.abs().amax(1) > 0
        if config.sparse:
            if not active.any():
                active[0] = True  # every rank takes part in the exchange of gradients
            self.train_net(inputs[active]).backward(gradient[active])
        else:
            embedded.backward(gradient)
        self.optimizer.step()
        if config.method == "dsl":
            self.scale_optimizer.step()
            self.scale_optimizer.zero_grad()
        return {"loss": loss.item(), "active": active.float().mean().item(), "sigma": sigma}

    def _loss(
        self, leaf: Tensor, labels: Tensor, candidates: int, inputs: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, float]:
        """The mean over this rank's queries, and their mean scale. What all ranks give an embedding is summed, and
        parameters get the mean over ranks: that of all queries."""
        config, ranks = self.config, self.ranks
        alone, direct = config.queries == 0, config.method.startswith("d")
        bank, bank_labels = ranks.gather(leaf[:candidates]), ranks.gather_labels(labels[:candidates])
        asking = slice(0, candidates) if alone else slice(candidates, None)
        scores = negative_distance(leaf[asking], bank)
        if direct and config.cost == "label-distance":
            cost = costs.label_distance(-scores, bank_labels, labels[asking])
        else:
            cost = costs.wrong_label(bank_labels, labels[asking], config.k)
        if alone:
            scores, cost = (_without_own(part, ranks.index * candidates) for part in (scores, cost))
        if not direct:
            return self._relaxed(scores, cost, generator).mean(), 0.0
        scale: float | Tensor = {"direct0": 0.0, "direct1": 1.0}.get(config.method, 0.0)
        if config.method == "dsl":
            scale = self.train_scale_net((inputs if config.scale_input == "image" else leaf.detach())[asking])
        loss = self.criterion(scores, cost, scale=scale, generator=generator)
        return loss, scale.mean().item() if isinstance(scale, Tensor) else scale

    def _relaxed(self, scores: Tensor, wrong: Tensor, generator: torch.Generator) -> Tensor:
        """The relaxed share of wrong neighbours; NeuralSort sorts by squared distances."""
        config = self.config
        if config.method == "neuralsort":
            chosen = neuralsort(-scores.square(), config.temperature, config.k).sum(-2).unsqueeze(0)
        elif config.method == "neuralsort-stochastic":
            keys = perturb(-scores.square(), samples=config.samples, generator=generator)
            chosen = neuralsort(keys, config.temperature, config.k).sum(-2)
        else:
            keys = perturb(scores, samples=config.samples, generator=generator)
            chosen = relaxed_subset(keys, Subset(config.k), config.temperature)
        return (chosen * wrong).sum(-1)

    def state(self) -> dict[str, Any]:
        """Everything that training goes on from."""
        return {
            "config": config_hash("neighbors", asdict(self.config)),
            "epoch": self.epoch,
            "commits": self.commits,
            "curve": self.curve,
            "best": self.best,
            "net": self.net.state_dict(),
            "scale_net": self.scale_net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scale_optimizer": self.scale_optimizer.state_dict(),
            "criterion": self.criterion.state_dict(),
            "generator": self.generator.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        for name in ("epoch", "commits", "curve", "best"):
            setattr(self, name, state[name])
        for name in ("net", "scale_net", "optimizer", "scale_optimizer", "criterion"):
            getattr(self, name).load_state_dict(state[name])
        self.generator.set_state(state["generator"])


def train(
    config: Config,
    images: Images,
    checkpoint: Path,
    ranks: Ranks = Ranks(),
    on_step: Callable[[int, int, int], None] = lambda epoch, done, total: None,
    on_epoch: Callable[[dict[str, float]], None] = lambda point: None,
) -> dict[str, Any]:
    """Train a cell, from its checkpoint where there is one; return its result.

    ``on_epoch`` is also called with the last point of a checkpoint.
    """
    training = Training(config, images, ranks)
    if checkpoint.exists():
        training.restore(load_checkpoint(checkpoint, config))
        on_epoch(training.curve[-1])
    while training.epoch < config.epochs:
        point = training.run_epoch(lambda done, total: on_step(training.epoch, done, total))
        if ranks.index == 0:
            point["validation_accuracy"] = accuracy(
                training.net, config.k, images, images.held, images.held_labels, config.bank
            )
            training.curve.append({"epoch": training.epoch, **point})
            if point["validation_accuracy"] >= training.best["accuracy"]:
                kept = {name: value.clone() for name, value in training.net.state_dict().items()}
                training.best = {"accuracy": point["validation_accuracy"], "epoch": training.epoch, "net": kept}
            save_checkpoint(checkpoint, training.state())
            on_epoch(training.curve[-1])
        ranks.wait()
    if ranks.index:
        return {}
    training.net.load_state_dict(training.best["net"])
    curve = training.curve
    return {
        "accuracy": 100 * accuracy(training.net, config.k, images, images.test, images.test_labels),
        "validation_accuracy": 100 * training.best["accuracy"],
        "best_epoch": training.best["epoch"],
        "sigma": curve[training.best["epoch"] - 1]["sigma"],
        "final_epsilon": float(training.epsilon),
        "seconds_per_epoch": sum(point["seconds"] for point in curve) / len(curve),
        "seconds_per_query": sum(point["seconds_per_query"] for point in curve) / len(curve),
        "processes": ranks.count,
        "commits": training.commits,
        "curve": curve,
    }


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Whole or not at all."""
    with open_atomically(path) as file:
        torch.save(state, file)


def load_checkpoint(path: Path, config: Config) -> dict[str, Any]:
    """A saved state of this configuration; nothing in it can execute code."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:
        raise UserError(f"{path} is no checkpoint ({type(error).__name__}); delete it to start again") from None
    if not isinstance(state, dict) or state.get("config") != config_hash("neighbors", asdict(config)):
        raise UserError(f"{path} is a checkpoint of another configuration; give another --checkpoints folder")
    return state


def _without_own(scores: Tensor, first: int) -> Tensor:
    """(Q, N) without the entries (i, first + i): a query is not its own neighbour."""
    if scores.shape[0] == scores.shape[1]:
        return without_diagonal(scores)
    rows = torch.arange(len(scores)).unsqueeze(1)
    others = torch.arange(scores.shape[1] - 1) + (torch.arange(scores.shape[1] - 1) >= first + rows)
    return scores.gather(1, others)
