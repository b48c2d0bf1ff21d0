"""Programmes of 16 items and 2 constraints against SciPy, which calls HiGHS as well, and two workers against one."""

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

import directloss as dl


def cases(batch: int = 64, n: int = 16) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(1, 20, (2, n), generator=generator).double()
    capacity = weights.sum(1) // 2
    scores = torch.rand(batch, n, generator=generator, dtype=torch.float64)
    rows, limits = weights.numpy(), capacity.numpy()

    def by_milp():
        constraint, bounds, options = LinearConstraint(rows, -np.inf, limits), Bounds(0, 1), {"mip_rel_gap": 0}
        return [
            milp(-c, constraints=constraint, bounds=bounds, integrality=np.ones(n), options=options).x
            for c in scores.numpy()
        ]

    def by_linprog():
        return [linprog(-c, A_ub=rows, b_ub=limits, bounds=(0, 1)).x for c in scores.numpy()]

    def program(**options):
        structure = dl.Program(A_ub=weights, b_ub=capacity, **options)
        structure.solve(scores)  # workers start at the first call
        return lambda: structure.solve(scores)

    def check(y, theirs):
        best = (scores * torch.as_tensor(np.asarray(theirs))).sum(-1)
        torch.testing.assert_close((scores * y).sum(-1), best, rtol=1e-7, atol=0)

    return [
        {
            "work": f"Program, {n} items, 2 constraints, {kind}, batch {batch}",
            "against": against,
            "target": target,
            "ours": ours,
            "theirs": theirs,
            "check": check,
        }
        for kind, against, target, ours, theirs in (
            ("integer", "scipy.optimize.milp", 1.0, program(), by_milp),
            ("linear", "scipy.optimize.linprog", 4.0, program(integer=False), by_linprog),
            ("integer, two workers", "one worker", 1.6, program(workers=2), program(workers=1)),
        )
    ]
