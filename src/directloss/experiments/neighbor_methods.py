"""What the methods of the neighbours' experiment are, besides the direct loss: their rules, and what they learn."""

from typing import Any

import torch
from torch import Tensor, nn

from directloss import nets
from directloss.experiments.images import Images, embed
from directloss.experiments.methods import call_own
from directloss.experiments.neighbor_recipes import Config
from directloss.layers.neuralsort import neuralsort
from directloss.layers.relaxed_subset import relaxed_subset
from directloss.perturbation import perturb


def make_companion(config: Config, images: Images, net: nn.Module, generator: torch.Generator) -> nn.Module:
    """What is trained beside the embedding: the classifier of softmax-knn, else a scale, whether it is used or not."""
    channels, size = images.train.shape[1], images.train.shape[-1]
    if config.method == "softmax-knn":
        with nets.seeded(generator):
            return nn.Linear(embed(net, images, images.train[:1]).shape[1], images.classes)
    if config.method == "annealed" or config.scale_input == "one":
        with torch.no_grad():
            first = net.train()(images.normalize(images.train[: config.candidates]))
        return nets.OneScale(config.scale_start * spread(first))
    if config.scale_input == "embedding":
        return nets.LinearScale(embed(net, images, images.train[:1]).shape[1], generator=generator)
    make_scale = nets.LeNetScale if 16 <= size < 32 else nets.ConvScale
    return make_scale(channels, size, generator=generator)


def spread(embedded: Tensor) -> float:
    """The standard deviation of the distances in a batch."""
    return nn.functional.pdist(embedded.detach()).std().item()


def rule(
    config: Config, scores: Tensor, wrong: Tensor, structure: Any, generator: torch.Generator | None = None
) -> Tensor:
    """A relaxation's share of wrong neighbours, or the user's own loss. NeuralSort sorts by squared distances."""
    if config.method == "neuralsort":
        chosen = neuralsort(-scores.square(), config.temperature, config.k).sum(-2).unsqueeze(0)
    elif config.method == "neuralsort-stochastic":
        values = -scores.square()  # less their median, so that no noise drowns in a common offset
        keys = _perturbed(config, values - values.detach().median(-1, keepdim=True).values, generator)
        chosen = neuralsort(keys, config.temperature, config.k).sum(-2)
    elif config.method == "relaxsubsample":
        keys = _perturbed(config, scores, generator)
        chosen = relaxed_subset(keys, structure, config.temperature)
    else:
        return call_own(config.method, scores, wrong, structure, generator)
    return (chosen * wrong).sum(-1)


def _perturbed(config: Config, scores: Tensor, generator: torch.Generator | None) -> Tensor:
    keys = perturb(scores, samples=config.samples, generator=generator)
    assert isinstance(keys, Tensor)
    return keys
