"""Expected structures and exact gradients of the expected loss under Gumbel noise, without the estimator.

Everything follows from V(mu, sigma) = E max_y <mu + sigma * gamma, y>: its derivatives are E[y] (to mu) and
E[<gamma, y>] (to sigma). So the estimator's own expectation is a difference of those at mu + epsilon * cost and at mu,
for a finite epsilon too, and the exact gradient is that of E[loss] = <cost, dV/dmu>.
"""

from dataclasses import dataclass

import torch
from tables import Row
from torch import Tensor

import directloss as dl
from directloss.noise.distributions import EULER_GAMMA


def expected_best(row: Row, mu: Tensor, sigma: Tensor) -> Tensor:
    """V in closed form for one of n, and for two of n by E[second] = sum_i E[max without i] - (n - 1) E[max]."""
    best = sigma * torch.logsumexp(mu / sigma, -1)
    if isinstance(row.structure, dl.Choice):
        return best
    assert isinstance(row.structure, dl.Subset)
    assert row.structure.k == 2
    n = len(mu)
    others = torch.stack([sigma * torch.logsumexp(mu[torch.arange(n) != i] / sigma, -1) for i in range(n)])
    return others.sum() - (n - 2) * best


def closed_expectations(row: Row, mu: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """E[y] and E[<gamma, y>], differentiable."""
    mu, sigma = (tensor if tensor.requires_grad else tensor.clone().requires_grad_() for tensor in (mu, sigma))
    return torch.autograd.grad(expected_best(row, mu, sigma), (mu, sigma), create_graph=True)


def closed_gradient(row: Row, mu: Tensor, sigma: Tensor, cost: Tensor) -> Tensor:
    """The exact gradient of E[<cost, y>]: to the entries, then to sigma, (E + 1,)."""
    mu, sigma = mu.clone().requires_grad_(), sigma.clone().requires_grad_()
    to_mu, to_sigma = torch.autograd.grad(cost @ closed_expectations(row, mu, sigma)[0], (mu, sigma))
    return torch.cat([to_mu, to_sigma[None]])


def closed_estimate(row: Row, mu: Tensor, sigma: Tensor, cost: Tensor, epsilon: float, sides: str) -> Tensor:
    """What the estimator's mean is for this epsilon, exactly: (E + 1,)."""

    def at(step: float) -> Tensor:
        y, noise = closed_expectations(row, mu + step * cost, sigma)
        return torch.cat([y, noise[None]]).detach()

    return (at(epsilon) - at(0.0)) / epsilon if sides == "one" else (at(epsilon) - at(-epsilon)) / (2 * epsilon)


@dataclass(frozen=True)
class Estimate:
    """A mean over independent draws, with its standard error."""

    mean: Tensor
    error: Tensor

    @classmethod
    def of(cls, draws: Tensor) -> "Estimate":
        return cls(draws.mean(0), draws.std(0) / len(draws) ** 0.5)

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(self.mean + other.mean, torch.hypot(self.error, other.error))


def assert_agrees(estimate: Estimate, exact: Tensor | Estimate) -> None:
    """Within five standard errors: by chance, one entry in 1.7 million would not."""
    exact = exact if isinstance(exact, Estimate) else Estimate(exact, torch.zeros_like(exact))
    away = (estimate.mean - exact.mean).abs() / torch.hypot(estimate.error, exact.error)
    assert away.max() < 5, f"{away.max():.1f} standard errors: {estimate} against {exact}"


@dataclass(frozen=True)
class ScoreFunction:
    """The likelihood-ratio identity, from enumeration: unbiased for any structure, slow, and blind to the estimator.

    With G = gamma + c standard Gumbel and w = exp(-G), the density's logarithmic derivative is w - 1, so that
    d/dmu_e E[l(y)] = E[l(y) (1 - w_e)] / sigma and d/dsigma E[l(y)] = E[l(y) sum_e (gamma_e (1 - w_e) - 1)] / sigma.
    """

    cost: Tensor
    sigma: float
    gamma: Tensor  # (N, E)
    y: Tensor  # (N, E), the best of the enumerated structures

    @classmethod
    def draw(cls, row: Row, mu: Tensor, sigma: float, cost: Tensor, draws: int, seed: int) -> "ScoreFunction":
        uniform = torch.rand(draws, mu.numel(), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        gamma = -torch.log(-torch.log(uniform)) - EULER_GAMMA
        every = row.every.flatten(1)
        return cls(cost.flatten(), sigma, gamma, every[((mu.flatten() + sigma * gamma) @ every.mT).argmax(1)])

    def gradient(self) -> Estimate:
        loss = self.y @ self.cost
        loss = (loss - loss.mean())[:, None]  # a constant changes nothing but the variance
        slope = 1 - torch.exp(-(self.gamma + EULER_GAMMA))
        to_mu, to_sigma = loss * slope, loss * (self.gamma * slope - 1).sum(1, keepdim=True)
        return Estimate.of(torch.cat([to_mu, to_sigma], 1) / self.sigma)

    def bias(self, epsilon: float, sides: str) -> Estimate:
        """The estimator's mean for this epsilon less its limit, by reweighting the draws to scores mu + epsilon * cost.

        y_eps of the noise gamma is y of the noise gamma + epsilon * cost / sigma.
        """
        shift, w = self.cost / self.sigma, torch.exp(-(self.gamma + EULER_GAMMA))
        values = torch.cat([self.y, (self.y * self.gamma).sum(1, keepdim=True)], 1)
        moved = torch.cat([torch.zeros_like(self.y), self.y @ shift[:, None]], 1)

        def at(step: float) -> Tensor:
            ratio = torch.exp(step * shift.sum() - (w * torch.expm1(step * shift)).sum(1, keepdim=True))
            return ratio * (values - step * moved)

        limit = ((1 - w) @ shift)[:, None] * values - moved
        ahead, behind, width = (
            (at(epsilon), values, epsilon) if sides == "one" else (at(epsilon), at(-epsilon), 2 * epsilon)
        )
        return Estimate.of((ahead - behind) / width - limit)
