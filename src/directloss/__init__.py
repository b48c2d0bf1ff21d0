"""directloss: train neural networks through discrete structured predictors.

scores, scale ->  noise  ->  structure  ->  estimator  ->  autograd, any torch optimiser
"""

from directloss import costs, nets
from directloss.epsilon import AdaptiveEpsilon
from directloss.estimators import DirectLoss, direct_loss, gumbel_sinkhorn, sinkhorn
from directloss.noise import Gumbel, Logistic, Noise, Normal
from directloss.structures import Choice, Matching, Structure, Subset, custom
from directloss.threads import get_num_threads, set_num_threads

__version__ = "0.1.0"

__all__ = [
    # structures: sets with a fast exact maximiser
    "Choice",
    "Matching",
    "Structure",
    "Subset",
    "custom",
    # noise: zero-mean distributions
    "Gumbel",
    "Logistic",
    "Noise",
    "Normal",
    # estimators: rules that turn maximisations into gradients
    "DirectLoss",
    "direct_loss",
    "AdaptiveEpsilon",
    "gumbel_sinkhorn",
    "sinkhorn",
    # task losses as linear costs, and the paper's nets
    "costs",
    "nets",
    # settings
    "get_num_threads",
    "set_num_threads",
]
