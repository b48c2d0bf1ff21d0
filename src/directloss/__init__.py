"""directloss: train neural networks through discrete structured predictors.

scores, scale ->  noise  ->  structure  ->  estimator  ->  autograd, any torch optimiser
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from directloss import costs, data, nets
    from directloss.auditor import Audit, audit
    from directloss.epsilon import AdaptiveEpsilon, suggest_epsilon
    from directloss.estimators import DirectLoss, direct_loss, gumbel_neuralsort, gumbel_sinkhorn
    from directloss.estimators.neuralsort import neuralsort
    from directloss.estimators.relaxed_subset import relaxed_subset
    from directloss.estimators.sinkhorn import sinkhorn
    from directloss.expectations import exact
    from directloss.neighbors import DirectNeighborsClassifier, NeighborLoss
    from directloss.noise import Gumbel, Logistic, Noise, Normal
    from directloss.structures import Choice, Matching, Structure, Subset
    from directloss.structures.custom import custom
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
    "suggest_epsilon",
    "gumbel_neuralsort",
    "gumbel_sinkhorn",
    "neuralsort",
    "relaxed_subset",
    "sinkhorn",
    # what is right: exact values by enumeration, and estimators against them
    "Audit",
    "audit",
    "exact",
    # k nearest neighbours: a loss for your own loop, and a scikit-learn classifier
    "DirectNeighborsClassifier",
    "NeighborLoss",
    # task losses as linear costs, the paper's nets, and image data sets
    "costs",
    "nets",
    "data",
    # settings
    "get_num_threads",
    "set_num_threads",
]

# Names are imported when they are first used, so that `directloss --help` does not wait for torch.
_MODULES = ("structures", "noise", "estimators", "epsilon", "expectations", "auditor", "neighbors", "threads")


def __getattr__(name: str) -> Any:
    if name in __all__:
        if name in ("costs", "nets", "data"):
            return import_module(f"directloss.{name}")
        for module in map(import_module, (f"directloss.{module}" for module in _MODULES)):
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module 'directloss' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
