"""Training of the neighbours' experiment.

A net embeds images; a query's scores are its negative distances to the candidates; the prediction is the k nearest,
and the loss is the share of them with another label. A step has two halves: from the embeddings to the gradient of the
loss with respect to them, and from there back through the net, which images without a gradient can be spared.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from directloss import data as image_data
from directloss import nets
from directloss.errors import UserError
from directloss.experiments.images import Images, accuracy, augment, embed
from directloss.experiments.memory import keep_freed_memory
from directloss.experiments.neighbor_methods import make_companion, rule, spread
from directloss.experiments.neighbor_recipes import DIRECT, OF_ANY_WIDTH, Config
from directloss.experiments.neighbors import EXPERIMENT
from directloss.experiments.optimizers import OPTIMIZERS, rate
from directloss.experiments.ranks import Ranks
from directloss.lab import checkpoints
from directloss.lab.experiment import Context
from directloss.lab.provenance import code_version
from directloss.losses.growth import GrowingEpsilon
from directloss.neighbors.loss import NeighborLoss
from directloss.noise import Gumbel


class Training:
    """A net in training, with all that has to be saved to go on exactly."""

    def __init__(self, config: Config, images: Images, ranks: Ranks):
        check_batch(config, len(images.train), ranks.count)
        self.config, self.images, self.ranks = config, images, ranks
        self.generator = torch.Generator().manual_seed(config.seed)
        channels, size = images.train.shape[1], images.train.shape[-1]
        options: dict[str, Any] = {} if config.net == "lenet" else {"norm": config.norm}
        options |= {"width": config.width} if config.net in OF_ANY_WIDTH else {}
        self.net = nets.IMAGE_NETS[config.net](channels, size, generator=self.generator, **options)
        if isinstance(self.net, nets.WhiteNet):
            self.net.whiten(images.normalize(images.train[:2000]))
        self.companion = make_companion(config, images, self.net, self.generator)
        self.train_net, self.train_companion = ranks.wrap(self.net), ranks.wrap(self.companion)
        learned = [self.net.parameters(), *([self.companion.parameters()] if config.method == "softmax-knn" else [])]
        self.optimizer = OPTIMIZERS[config.optimizer](
            chain(*learned), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.scale_optimizer = OPTIMIZERS[config.scale_optimizer](
            self.companion.parameters(), lr=config.scale_learning_rate
        )
        self.epsilon = GrowingEpsilon(config.epsilon, limit=config.limit)
        self.criterion = NeighborLoss(
            config.k,
            epsilon=self.epsilon,
            sides=config.sides,
            noise=Gumbel(config.noise_variance),
            samples=1 if config.method == "direct0" else config.samples,
            cost="label-distance" if config.method in DIRECT and config.cost == "label-distance" else "wrong-label",
            rule=None if config.method in DIRECT else partial(rule, config),
        )
        # "alternate": a random half is mirrored in the first epoch, the other half in the second, and so on.
        self.turned = torch.rand(len(images.train), generator=torch.Generator().manual_seed(config.seed)) < 0.5
        self.epoch = 0
        self.commits: list[str] = []  # whose code trained it
        self.curve: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"accuracy": -1.0}

    def run_epoch(self, on_step: Callable[[float], None] = lambda share: None) -> dict[str, float]:
        """One pass over the candidates; return the means of what its steps saw."""
        config, start = self.config, time.perf_counter()
        self.net.train()
        seen = []
        batches = list(self.batches())
        for index, (candidates, queries) in enumerate(batches):
            done = (self.epoch + index / len(batches)) / config.epochs
            if config.decay:
                for group in self.optimizer.param_groups:
                    group["lr"] = config.learning_rate * rate(done, config.rise)
            if config.method == "annealed" and isinstance(self.companion, nets.OneScale):
                self.companion.anneal(done, config.scale_end / config.scale_start)
            seen.append(self.step(candidates, queries))
            on_step((index + 1) / len(batches))
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
        turned = self.turned[index] ^ bool(self.epoch % 2)
        varied = augment(self.images.train[index], config.augment, generator, turned, config.erase)
        inputs = self.images.normalize(varied)
        labels = self.images.train_labels[index]
        with torch.set_grad_enabled(not config.sparse):
            embedded = self._embed(self.net if config.sparse else self.train_net, inputs)
        leaf = embedded.detach().requires_grad_()
        self.optimizer.zero_grad()
        loss, sigma = self._loss(leaf, labels, len(candidates), inputs, generator)
        loss.backward()
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        active = gradient.abs().amax(1) > 0
        if config.sparse:
            if not active.any():
                active[0] = True  # every rank takes part in the exchange of gradients
            self._embed(self.train_net, inputs[active]).backward(gradient[active])
        else:
            embedded.backward(gradient)
        self.optimizer.step()
        if config.method == "dsl":
            self.scale_optimizer.step()
            self.scale_optimizer.zero_grad()
        apart = spread(leaf[:100])
        return {"loss": loss.item(), "active": active.float().mean().item(), "sigma": sigma, "spread": apart}

    def _embed(self, net: nn.Module, inputs: Tensor) -> Tensor:
        with self.precision():
            embedded: Tensor = net(inputs)
        return embedded.float()

    def precision(self) -> torch.autocast:
        """In training and validation; the test is in float32."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bfloat16")

    def _loss(
        self, leaf: Tensor, labels: Tensor, candidates: int, inputs: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, float]:
        """The mean over this rank's queries, and their mean scale. What all ranks give an embedding is summed, and
        parameters get the mean over ranks: that of all queries."""
        config, ranks = self.config, self.ranks
        if config.method == "softmax-knn":
            logits = self.train_companion(leaf)
            return nn.functional.cross_entropy(logits, labels, label_smoothing=config.smoothing), 0.0
        bank, bank_labels = ranks.gather(leaf[:candidates]), ranks.gather_labels(labels[:candidates])
        among = config.queries == 0  # the queries are the candidates themselves
        chosen = slice(0, candidates) if among else slice(candidates, None)
        queries, scale = leaf[chosen], 1.0 if config.method == "direct1" else 0.0  # type: Tensor, float | Tensor
        sigma = scale
        if config.method == "dsl":
            scale = self.train_companion((inputs if config.scale_input == "image" else leaf.detach())[chosen])
        elif config.method == "annealed":
            scale = self.companion(queries).detach()
        if isinstance(scale, Tensor):
            sigma = scale.mean().item()
            if isinstance(self.companion, nets.OneScale):
                # In units of sigma: distances are, so epsilon is, and the gradient is that of log sigma.
                queries, bank, scale = queries / sigma, bank / sigma, scale / sigma
        own = ranks.index * candidates if among else None
        return self.criterion(queries, labels[chosen], bank, bank_labels, scale, generator, own), float(sigma)

    def state(self) -> dict[str, Any]:
        """Everything that training goes on from."""
        return {
            "epoch": self.epoch,
            "commits": self.commits,
            "curve": self.curve,
            "best": self.best,
            "net": self.net.state_dict(),
            "scale_net": self.companion.state_dict(),  # older than other companions
            "optimizer": self.optimizer.state_dict(),
            "scale_optimizer": self.scale_optimizer.state_dict(),
            "criterion": self.criterion.direct.state_dict(),
            "generator": self.generator.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.companion.load_state_dict(state["scale_net"])
        for name in ("net", "optimizer", "scale_optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.criterion.direct.load_state_dict(state["criterion"])
        self.generator.set_state(state["generator"])
        for name in ("epoch", "commits", "curve", "best"):
            setattr(self, name, state[name])
        if not (self.epoch == len(self.curve) == self.curve[-1]["epoch"]) or self.best["epoch"] > self.epoch:
            raise ValueError(f"epoch {self.epoch}, but a curve of {len(self.curve)} epochs")


def train(config: Config, repetitions: Sequence[int], context: Context) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cell, in the processes of torchrun if it started this one."""
    keep_freed_memory()
    result = train_cell(config, load_images(config, context), context.checkpoint, Ranks.join(), context.progress)
    yield from [(number, result) for number in repetitions if result]


def check(cells: Sequence[Config], context: Context) -> None:
    """Raise UserError if a cell has no images, too few, or a net that cannot take them."""
    ranks = Ranks.join()
    for cell in cells:
        images = load_images(cell, context)
        check_batch(cell, len(images.train), ranks.count)
        try:
            nets.IMAGE_NETS[cell.net](images.train.shape[1], images.train.shape[-1])
        except ValueError as error:
            raise UserError(f"--net {cell.net} is not for these images: {error}; give another --net") from None


def load_images(config: Config, context: Context) -> Images:
    return _load(config.data, context.settings.get("data_dir"), config.validation)


@cache
def _load(name: str, folder: Path | None, validation: int) -> Images:
    return Images(image_data.load(name, folder), validation)


def check_batch(config: Config, images: int, ranks: int = 1) -> None:
    """Raise UserError if so many training images and processes cannot make a batch."""
    if config.candidates + config.queries > images:
        raise UserError(
            f"a batch of {config.candidates} candidates and {config.queries} queries needs more images than the "
            f"{images} that {config.data} has for training; give fewer --candidates or --queries"
        )
    most = config.candidates // ranks * ranks - (config.queries == 0)
    if not 1 <= config.k <= most:
        raise UserError(
            f"--k has {config.k}, but a batch has {config.candidates} candidates; expected 1 to {most}, "
            "or give more --candidates"
        )
    if 0 < config.queries < ranks:
        raise UserError(f"--queries is {config.queries}, but there are {ranks} processes; expected {ranks} or more")


def train_cell(
    config: Config,
    images: Images,
    checkpoint: Path,
    ranks: Ranks = Ranks(),
    progress: Callable[[float, str], None] = lambda done, note: None,
) -> dict[str, Any]:
    """Train a cell, from its checkpoint if there is one; return its result, in the first of several processes only."""
    training = Training(config, images, ranks)
    if checkpoint.exists():
        checkpoints.restore(checkpoint, EXPERIMENT.key(config), training.restore)
    note = ""

    def on_step(share: float) -> None:
        progress((training.epoch + share) / config.epochs, note)

    while training.epoch < config.epochs:
        point = training.run_epoch(on_step)
        if ranks.index == 0:
            with training.precision():
                bank, held = (embed(training.net, images, part) for part in (images.train[: config.bank], images.held))
            point["validation_accuracy"] = accuracy(config.k, images, bank, held, images.held_labels)
            training.curve.append({"epoch": training.epoch, **point})
            if point["validation_accuracy"] >= training.best["accuracy"]:
                kept = {name: value.clone() for name, value in training.net.state_dict().items()}
                training.best = {"accuracy": point["validation_accuracy"], "epoch": training.epoch, "net": kept}
            checkpoints.save(checkpoint, EXPERIMENT.key(config), training.state())
            note = f"{100 * point['validation_accuracy']:.2f} % valid."
        ranks.wait()
    if ranks.index:
        return {}
    training.net.load_state_dict(training.best["net"])
    curve = training.curve
    bank, queries = (embed(training.net, images, part) for part in (images.train, images.test))
    tested = {"accuracy": 100 * accuracy(config.k, images, bank, queries, images.test_labels)}
    if config.mirror:
        bank += embed(training.net, images, images.train.flip(-1))
        queries += embed(training.net, images, images.test.flip(-1))
        tested["mirrored_accuracy"] = 100 * accuracy(config.k, images, bank / 2, queries / 2, images.test_labels)
    return {
        **tested,
        "validation_accuracy": 100 * training.best["accuracy"],
        "best_epoch": training.best["epoch"],
        "sigma": curve[training.best["epoch"] - 1]["sigma"],
        "final_epsilon": float(training.epsilon),
        "seconds_per_epoch": sum(point["seconds"] for point in curve) / len(curve),
        "seconds_per_query": sum(point["seconds_per_query"] for point in curve) / len(curve),
        "processes": ranks.count,
        "code": ", ".join(training.commits),
        "curve": curve,
    }
