"""Zero-mean noise for the scores."""

from directloss.noise.distributions import EULER_GAMMA, Gumbel, Logistic, Noise, Normal

__all__ = ["EULER_GAMMA", "Gumbel", "Logistic", "Noise", "Normal"]
