"""directloss: train neural networks through discrete decisions.

scores, scale ->  noise  ->  structure  ->  loss or layer  ->  autograd, any torch optimiser
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# The public API: each name with the module that defines it. A name is imported when it is first used, so that
# `directloss --help` does not wait for torch.
_PUBLIC = {
    # structures: finite sets with an exact maximiser
    "Arborescence": "structures.arborescence",
    "Bits": "structures.bits",
    "Chain": "structures.chain",
    "Choice": "structures.choice",
    "Finite": "structures.finite",
    "GridPath": "structures.gridpath",
    "Interleaving": "structures.interleaving",
    "Knapsack": "structures.knapsack",
    "Matching": "structures.matching",
    "Path": "structures.path",
    "Pool": "structures.pool",
    "Program": "structures.program",
    "Ranking": "structures.ranking",
    "SpanningTree": "structures.spanning_tree",
    "Structure": "structures.base",
    "Subset": "structures.subset",
    "custom": "structures.custom",
    # noise: zero-mean distributions, and the one way to perturb
    "Gumbel": "noise.distributions",
    "Logistic": "noise.distributions",
    "Noise": "noise.distributions",
    "Normal": "noise.distributions",
    "perturb": "perturbation",
    # losses: loss(scores, supervision, structure, ...)
    "DirectLoss": "losses.criterion",
    "direct_loss": "losses.direct",
    "GrowingEpsilon": "losses.growth",
    "contrastive": "losses.contrastive",
    "fenchel_young": "losses.fenchel_young",
    "rank_pool": "losses.rank_pool",
    "reinforce": "losses.reinforce",
    "smooth_top_k": "losses.smooth_top_k",
    "spo_plus": "losses.spo_plus",
    "structured_hinge": "losses.hinge",
    "likelihood": "losses.likelihood",
    # layers: layer(scores, structure, ...) -> y
    "AdaptiveStep": "layers.adaptive_step",
    "blackbox": "layers.blackbox",
    "identity": "layers.identity",
    "imle": "layers.imle",
    "neural_neighbors": "layers.neural_neighbors",
    "neuralsort": "layers.neuralsort",
    "ot_top_k": "layers.ot_top_k",
    "perturbed": "layers.perturbed",
    "relaxed_subset": "layers.relaxed_subset",
    "sinkhorn": "layers.sinkhorn",
    "soft_rank": "layers.soft_rank",
    "soft_sort": "layers.soft_sort",
    "softmax": "layers.softmax",
    "sparsemap": "layers.sparsemap",
    # judging: what is right, and what a rule or a solver does
    "Audit": "judging.measurement",
    "audit": "judging.audit",
    "check_structure": "judging.check",
    "compare": "lab.compare",
    "exact": "judging.exact",
    "regret": "judging.regret",
    "suggest_epsilon": "judging.suggest",
    # k nearest neighbours: a loss for your own loop, and a scikit-learn classifier
    "DirectNeighborsClassifier": "neighbors.classifier",
    "NeighborLoss": "neighbors.loss",
    # settings
    "get_num_threads": "threads",
    "set_num_threads": "threads",
}
# Modules that the core does not need, and the extra that brings each.
_EXTRAS = {"sklearn": "sklearn", "highspy": "highs", "cyclopts": "lab", "joblib": "lab", "rich": "lab"}
# Task losses as linear costs, measures of predictions, the paper's nets, and data sets.
_MODULES = ("costs", "metrics", "nets", "data")

__all__ = [*_PUBLIC, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"directloss.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'directloss' has no attribute {name!r}")
    try:
        globals()[name] = found = getattr(import_module(f"directloss.{_PUBLIC[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        extra = _EXTRAS[error.name]
        raise ImportError(f"dl.{name} needs {error.name}: pip install 'directloss[{extra}]'") from None
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
