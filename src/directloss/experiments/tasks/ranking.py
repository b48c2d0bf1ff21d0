"""Learning to rank web pages: NDCG itself is trained, beside LightGBM's two objectives."""

import time
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from directloss import metrics
from directloss.data.tables import Queries, load_ranking
from directloss.errors import need
from directloss.experiments.tasks.energy import SharedLinear
from directloss.lab.problem import Instances, Metric, Problem
from directloss.structures.base import Structure
from directloss.structures.ranking import Ranking

_VALIDATION = 40  # of the 201 training queries
_HIDDEN = 64


def ranking(config: Any, seed: int, data_dir: Any = None) -> Problem:
    """The cost of a ranking is minus its NDCG: minus the gains over the best DCG, times the discount at each rank."""
    known, unknown = load_ranking(data_dir)
    order = torch.randperm(len(known.sizes), generator=torch.Generator().manual_seed(seed))
    training = _instances(known)
    longest = max(training.features.shape[1], int(unknown.sizes.max()))
    discounts = 1 / torch.log2(torch.arange(2.0, longest + 2))
    net = {"mlp": partial(SharedPerceptron, known.features.shape[1])}.get(
        config.net, partial(SharedLinear, known.features.shape[1])
    )
    return Problem(
        net,
        partial(_structure, discounts),
        training[order[_VALIDATION:]],
        _instances(unknown),
        training[order[:_VALIDATION]],
        # The first one chooses the epoch.
        {f"NDCG@{k}": Metric(partial(_ndcg, k), higher=True, each=True) for k in (3, 1, 5, 10)},
    )


def _instances(queries: Queries) -> Instances:
    features, grades, mask = (torch.from_numpy(array) for array in queries.padded())
    gains = torch.exp2(grades.float()) - 1
    best = gains.sort(-1, descending=True).values / torch.log2(torch.arange(2.0, gains.shape[1] + 2))
    cost = -gains / best.sum(-1, keepdim=True).clamp_min(1)
    return Instances(features, cost, (mask, grades), grades.float().masked_fill(~mask, torch.nan))


def _structure(discounts: Tensor, mask: Tensor, grades: Tensor) -> Ranking:
    return Ranking(discounts[: mask.shape[1]], mask)


def _ndcg(k: int, scores: Tensor, instances: Instances, structure: Structure) -> Tensor:
    mask, grades = instances.given
    return metrics.ndcg(scores, grades, k, mask=mask)


class SharedPerceptron(nn.Module):
    """One small net for all items: features (..., n, p) -> scores (..., n)."""

    def __init__(self, features: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layers(x)
        return scores.squeeze(-1)


def boost(problem: Problem, objective: str, seed: int) -> dict[str, Any]:
    """LightGBM's trees with the settings of its own example, stopped early by the same validation queries."""
    need("lightgbm", f"the loss {objective}", extra="bench")
    import lightgbm

    settings = {
        "objective": {"xendcg": "rank_xendcg"}.get(objective, objective),
        "metric": "ndcg",
        "eval_at": [3],
        "bagging_freq": 1,
        "bagging_fraction": 0.9,
        "min_data_in_leaf": 50,
        "min_sum_hessian_in_leaf": 5.0,
        "num_threads": 1,
        "seed": seed,
        "verbosity": -1,
    }
    assert problem.validation is not None
    training, validation, test = (_documents(one) for one in (problem.train, problem.validation, problem.test))
    data = lightgbm.Dataset(training[0], training[1], group=training[2], params={"verbosity": -1})
    held = lightgbm.Dataset(validation[0], validation[1], group=validation[2], reference=data)
    start = time.perf_counter()
    stop = lightgbm.early_stopping(20, verbose=False)
    model = lightgbm.train(settings, data, 200, valid_sets=[held], callbacks=[stop])
    spent = time.perf_counter() - start
    mask = problem.test.given[0]
    scores = torch.zeros(mask.shape)
    scores[mask] = torch.from_numpy(model.predict(test[0])).float()
    structure = problem.structure_of(problem.test)
    found = {name: metric.measure(scores, problem.test, structure) for name, metric in problem.metrics.items()}
    epoch = model.best_iteration
    return {"metrics": problem.described(found), "epoch": epoch, "epochs": epoch, "seconds": spent, "course": []}


def _documents(instances: Instances) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features and grades of the documents, and how many each query has."""
    mask, grades = instances.given
    return instances.features[mask].numpy(), grades[mask].numpy(), mask.sum(-1).numpy()
