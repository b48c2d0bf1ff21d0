"""Rules that turn maximisations into gradients. ``direct`` is the paper; each peer method is one more file."""

from directloss.estimators.direct import DirectLoss, direct_loss

__all__ = ["DirectLoss", "direct_loss"]
