"""Settings of the neighbours' experiment: the configuration of a cell, and recipes that fill it in."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from directloss.errors import UserError
from directloss.lab.options import option

PAPER = ("direct0", "direct1", "dsl", "neuralsort", "neuralsort-stochastic", "relaxsubsample")
METHODS = (*PAPER, "annealed", "softmax-knn")
DIRECT = ("direct0", "direct1", "dsl", "annealed")
DATA = ("mnist", "fashion-mnist", "cifar-10", "digits")
NETS = ("lenet", "resnet9", "resnet18", "whitenet")
OF_ANY_WIDTH = ("resnet9", "whitenet")
OPTIMIZERS = ("adam", "sgd", "momentum", "nesterov", "muon")
PRECISIONS = ("float32", "bfloat16")
AUGMENTATIONS = ("none", "flip", "alternate", "shift", "reflect", "erase")


@dataclass(frozen=True)
class Config:
    """Every choice of a cell. The defaults are the paper's."""

    data: str = option(help="With commas.", of=lambda: DATA, preset="mnist")
    method: str = option(help="With commas.", name="methods", of=lambda: METHODS, own=True, preset="dsl")
    k: int = option(help="Neighbours, with commas.", least=1, preset="5")
    net: str = option("lenet", "Default by the data.", of=lambda: NETS)
    width: int = option(32, "Of a resnet9 or a whitenet.", least=1)
    norm: str = option("batch", "Statistics of a net other than a lenet.", of=lambda: ("batch", "group"))
    recipe: str = "paper"
    seed: int = option(0, "One or more, with commas.", least=0, most=2**63 - 1, preset="0")
    # training
    epochs: int = option(220, "Each is one pass over the candidates.", least=1)
    candidates: int = option(800, "In a batch.", least=2)
    queries: int = option(100, "In a batch, besides; 0 lets all candidates be queries.", least=0)
    validation: int = 5000  # images kept from training, to choose the epoch
    bank: int = 10_000  # training images that vote in validation; in the test all do
    augment: str = option("none", f"How images vary, joined by '-': {', '.join(AUGMENTATIONS)}.")
    erase: int = option(8, "Side of the square that 'erase' blanks out.", least=1)
    optimizer: str = option("adam", "Of the net.", of=lambda: OPTIMIZERS)
    learning_rate: float = option(1e-3, "Of the net.", above=0)
    weight_decay: float = option(0.0, "Of the net.", least=0)
    decay: bool = False  # linearly to zero
    rise: float = option(0.0, "The share of training in which the rate rises, if it decays.", least=0, most=0.9)
    precision: str = option("float32", "Of the net's convolutions in training.", of=lambda: PRECISIONS)
    sparse: bool = False  # no backward pass for images without a gradient; exact for nets without batch statistics
    # direct loss
    cost: str = "label-distance"  # or wrong-label
    sides: Literal["one", "both"] = option("one", "Of the direct loss.", of=lambda: ("one", "both"))
    epsilon: float = option(-0.1, "Of the direct loss, its sign included.", nonzero=True)
    limit: float = 0.9999
    samples: int = option(1, "Draws of the noise.", least=1)
    noise_variance: float = option(math.pi**2 / 6, "Of the noise of a direct loss.", above=0)  # standard Gumbel's
    # The learned scale is of a net of its own (image), of one more layer (embedding), or one number, its logarithm
    # being learned (one); epsilon is then in units of sigma, and sigma begins at scale_start times the first spread of
    # a query's distances.
    scale_input: str = option("image", "What the scale depends on.", of=lambda: ("image", "embedding", "one"))
    scale_optimizer: str = "sgd"
    scale_learning_rate: float = option(1e-6, "Of the scale.", above=0)
    scale_start: float = option(1.0, "Of one scale, and of annealing.", above=0)
    scale_end: float = option(0.1, "Of annealing, which falls by the same factor in each step.", above=0)
    # relaxations
    temperature: float = option(16.0, "Of a relaxation.", above=0)
    # softmax-knn
    smoothing: float = option(0.0, "Of the labels of softmax-knn.", least=0, most=1)
    # test
    mirror: bool = option(False, "Test also with embeddings averaged over an image and its mirror image.")

    def __post_init__(self) -> None:
        if self.method not in METHODS and ":" not in self.method:
            raise ValueError(f"method is {self.method!r}; expected of {METHODS}")
        if self.net not in NETS:
            raise ValueError(f"net is {self.net!r}; expected of {NETS}")
        words = self.augment.split("-")
        if unknown := [word for word in words if word not in AUGMENTATIONS]:
            raise ValueError(f"augment has {unknown[0]!r}; expected of {', '.join(AUGMENTATIONS)}, joined by '-'")
        for one, other in (("flip", "alternate"), ("shift", "reflect")):
            if one in words and other in words:
                raise ValueError(f"augment has both {one} and {other}; give one of them")
        if self.sparse and self.net != "lenet" and self.norm == "batch":
            raise ValueError("sparse is exact for nets without batch statistics only; give norm='group'")


def paper(data: str, method: str, k: int, net: str | None = None, seed: int = 0) -> Config:
    """The paper's recipe; for the relaxations that of NeuralSort's authors, which it follows."""
    colour = data == "cifar-10"
    net = net or {"mnist": "lenet", "digits": "resnet9"}.get(data, "resnet18")
    make = partial(Config, data, method, k, net, seed=seed, candidates=600 if colour else 800)
    if data == "digits":
        make = partial(make, candidates=400, validation=200)
    if method in DIRECT:
        return make(epsilon=-0.2 if colour else -0.1, samples=1 if k > 1 or method == "direct0" else 5)
    return make(
        optimizer="momentum",
        weight_decay=5e-4,
        samples=1 if method == "neuralsort" else 5,
        temperature=1.0 if method == "relaxsubsample" else 64.0 if colour else 16.0,
    )


_BEST_NETS = {"mnist": "lenet", "fashion-mnist": "whitenet", "cifar-10": "whitenet", "digits": "resnet9"}


def best(data: str, method: str, k: int, net: str | None = None, seed: int = 0) -> Config:
    """What two cores learn best from in minutes: every image is a query, a falling rate, varied images."""
    direct, net = method in DIRECT, net or _BEST_NETS[data]
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
        validation=200 if data == "digits" else 5000,
    )
    if net == "whitenet":
        return make(**_on_whitenet(data, method, k))
    if net == "lenet":
        return make(
            # In the same time: a relaxation has more to compute, and a direct loss spares half of the backward passes.
            epochs=24 if direct else 12,
            candidates=400 if data == "digits" else 500,
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


def _on_whitenet(data: str, method: str, k: int) -> dict[str, Any]:
    """One recipe for every method; of its own each has only what its loss is made of."""
    fashion = data == "fashion-mnist"  # whose images are smaller: time for more epochs, which erasing needs
    shared = {
        "width": 64 if data == "cifar-10" else 48 if fashion else 32,
        "epochs": 26 if fashion else 12,
        "candidates": 200 if data == "digits" else 500,
        "augment": {"cifar-10": "alternate-reflect", "fashion-mnist": "alternate-reflect-erase"}.get(data, "shift"),
        "optimizer": "muon",
        "learning_rate": 0.1,
        "rise": 0.25,
        "mirror": data in ("cifar-10", "fashion-mnist"),
        "sides": "one",
        "epsilon": -10.0 * k,
        "scale_input": "one",
        # Far to the better side, noise only ever costs: the gradient of log sigma keeps its sign, Adam makes that a
        # steady fall, and a faster or a longer one leaves too little noise in the end.
        "scale_learning_rate": 5e-4 if fashion else 1e-3,
        "scale_start": 0.3,
        "scale_end": 0.1,
        # Twice as fast as float32 where the processor has instructions for it, slower where it has none.
        "precision": "bfloat16",
    }
    own = {
        "neuralsort": {"temperature": 1024.0},
        "neuralsort-stochastic": {"temperature": 1024.0, "samples": 5},
        "relaxsubsample": {"temperature": 1.0, "samples": 5},
        "softmax-knn": {"smoothing": 0.2},
    }
    return shared | own.get(method, {"samples": 30, "noise_variance": 0.5})


def adjust(config: Config, **overrides: Any) -> Config:
    """An epsilon beyond the limit raises it."""
    if "width" in overrides and config.net not in OF_ANY_WIDTH:
        raise UserError(
            f"--width is of a resnet9 or a whitenet, but the net for {config.data} is {config.net}; leave it out, or "
            "give --net"
        )
    return replace(config, **overrides, limit=max(config.limit, abs(overrides.get("epsilon", 0))))
