"""Rules that turn maximisations into gradients. ``direct`` is the paper; each peer method is one more file."""

from directloss.estimators.direct import DirectLoss, direct_loss
from directloss.estimators.sinkhorn import gumbel_sinkhorn, sinkhorn

__all__ = ["DirectLoss", "direct_loss", "gumbel_sinkhorn", "sinkhorn"]
