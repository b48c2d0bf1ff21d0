"""Rules that turn maximisations into gradients. ``direct`` is the paper; each peer method is one more file."""

from directloss.estimators.direct import DirectLoss, direct_loss
from directloss.estimators.neuralsort import gumbel_neuralsort, neuralsort
from directloss.estimators.relaxed_subset import relaxed_subset
from directloss.estimators.sinkhorn import gumbel_sinkhorn, sinkhorn

__all__ = [
    "DirectLoss",
    "direct_loss",
    "gumbel_neuralsort",
    "gumbel_sinkhorn",
    "neuralsort",
    "relaxed_subset",
    "sinkhorn",
]
