"""Perturbed maximisers (Berthet et al. 2020): the mean of the structures under noise, and its unbiased gradient.

    Y(mu, sigma) = E[y],     y = argmax_y <mu + sigma gamma, y>,     gamma with density f, score s = -f' / f.

The distribution of ``theta = mu + sigma gamma`` moves with mu and sigma, whatever y does. So, with g the gradient to Y,

    to mu:     E[<g, y> s(gamma)] / sigma
    to sigma:  E[<g, y> (gamma s(gamma) - 1)] / sigma
    to a further part, which is not perturbed:  E[y_part <g / sigma, s(gamma)>],

the last because Y and E[y_part] are derivatives of one function, E[max], so that their cross derivatives are equal. A
baseline, the mean of the other samples' ``<g, y>`` (or of their y_part), changes none of these means but the variance.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from directloss.layers.decision import Rule, decide
from directloss.losses.solving import Tensors
from directloss.noise import Noise, Normal
from directloss.parts import Scores, Vertices, as_parts
from directloss.perturbation import Scale, check_samples
from directloss.structures.base import Structure
from directloss.transforms import inside_transform


def perturbed(
    scores: Scores,
    structure: Structure,
    *,
    scale: Scale = 1.0,
    noise: Noise = Normal(),
    samples: int = 10,
    baseline: bool = True,
    antithetic: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The mean over samples of the best structures under noise, (B..., *E). Takes every structure.

    With a linear loss behind it the gradient is unbiased, for scores and scale.

    Args:
        scores: (B..., *E), or a tuple of parts, of which the first is perturbed; each gets a gradient.
        structure: what is predicted.
        scale: of the noise, above 0: a number, one for each instance (B...), or one for each entry. The variance of
            the gradient grows as its inverse square.
        noise: what is drawn.
        samples: draws for each instance.
        baseline: subtract the mean of the other samples; with one sample, or one pair, there is none.
        antithetic: draw in pairs of opposite quantiles; needs an even number of samples.
        generator: the only source of randomness (None: torch's default generator).

    Example:
        >>> import torch, directloss as dl
        >>> scores = torch.tensor([0.0, 0.0, 9.0], requires_grad=True)
        >>> y = dl.perturbed(scores, dl.Choice(), samples=100)
        >>> y.sum().backward()  # always 1: nothing to learn
        >>> y.detach(), scores.grad.abs().max() < 1e-6
        (tensor([0., 0., 1.]), tensor(True))
    """
    if not isinstance(noise, Noise):
        raise TypeError(
            f"noise is {noise!r}, expected dl.Normal(), dl.Gumbel() or dl.Logistic(), whose density is known"
        )
    if not inside_transform() and (torch.as_tensor(scale) == 0).any():
        what = "has 0 among its numbers" if isinstance(scale, Tensor) else "is 0"
        raise ValueError(f"scale {what}; perturbed needs noise everywhere, e.g. scale=1.0")
    drawn: Noise | Tensor = noise
    if antithetic:
        if check_samples(samples) % 2:
            raise ValueError(f"samples is {samples}; antithetic draws come in pairs, expected an even number")
        first = structure.expanded(as_parts(scores))[0]
        shape = (samples, *first.shape)
        drawn = noise.antithetic(shape, generator=generator, dtype=first.dtype, device=first.device)
    rule = partial(_Perturbed, noise=noise, baseline=baseline, together=2 if antithetic else 1)
    return decide(rule, scores, structure, scale, drawn, samples, generator)


@dataclass(kw_only=True)
class _Perturbed(Rule):
    noise: Noise
    baseline: bool
    together: int  # how many samples depend on one another

    def gradients(
        self, grad: Tensor, scale: Tensor | None, noise: Tensor | None, parts: Tensors, vertices: tuple[Vertices, ...]
    ) -> list[Tensor | None]:
        assert scale is not None
        assert noise is not None
        wide = torch.promote_types(grad.dtype, torch.float32)
        sigma, gamma, grad = scale.detach().to(wide), noise.to(wide), grad.to(wide)
        score, samples = self.noise.score(gamma) / sigma, len(gamma)
        axes = tuple(range(-self.structure.entry_dims, 0))
        worth = self._less_others(vertices[0].inner(grad))[(..., *[None] * len(axes))] / samples
        to_first = (worth * score).sum(0)
        to_scale = (worth * (gamma * score - 1 / sigma)).sum_to_size((1, *scale.shape)).reshape(scale.shape)
        found: list[Tensor | None] = [to_scale.to(scale.dtype), to_first.to(parts[0].dtype)]
        # A part's own baseline is the same sum with the roles changed: the weights are centred, not the structures.
        weights = self._less_others((grad * score).sum(axes)).unsqueeze(-1) / samples
        for v, part in zip(vertices[1:], parts[1:], strict=True):
            found.append(v.sum_to(part.shape, wide, weights).to(part.dtype))
        return found

    def _less_others(self, worth: Tensor) -> Tensor:
        """(S, B...) less the mean over the samples that are independent of each, where there are any."""
        pairs = worth.unflatten(0, (self.together, -1))
        others = pairs.shape[1] - 1
        if not self.baseline or others == 0:
            return worth
        rest = (pairs.sum((0, 1)) - pairs.sum(0)) / (self.together * others)
        less: Tensor = (pairs - rest).flatten(0, 1)
        return less
