"""Knapsack against HiGHS, and against a dynamic programme in numpy, vectorised over the batch and the capacity."""

import highspy
import numpy as np
import torch

import directloss as dl

ITEMS, CAPACITY, BATCH = 50, 500, 32


def numpy_knapsack(scores, weights, capacity):
    batch, items = scores.shape
    best = np.zeros((batch, capacity + 1))
    taken = np.zeros((items, batch, capacity + 1), bool)
    for k in range(items):
        offer = best[:, : capacity + 1 - weights[k]] + scores[:, k, None]
        taken[k, :, weights[k] :] = offer > best[:, weights[k] :]
        best[:, weights[k] :] = np.maximum(best[:, weights[k] :], offer)
    y = np.zeros_like(scores)
    room, rows = np.full(batch, capacity), np.arange(batch)
    for k in range(items - 1, -1, -1):
        y[:, k] = taken[k, rows, room]
        room = room - weights[k] * taken[k, rows, room]
    return y


def cases():
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 40, ITEMS)
    scores = torch.rand(BATCH, ITEMS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = scores.numpy()
    structure = dl.Knapsack(torch.from_numpy(weights), CAPACITY)
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("mip_rel_gap", 0.0)
    for k in range(ITEMS):
        model.addVar(0.0, 1.0)
        model.changeColIntegrality(k, highspy.HighsVarType.kInteger)
    columns = np.arange(ITEMS, dtype=np.int32)
    model.addRow(0.0, CAPACITY, ITEMS, columns, weights.astype(float))
    model.changeObjectiveSense(highspy.ObjSense.kMaximize)

    def highs():
        found = []
        for row in rows:
            model.changeColsCost(ITEMS, columns, row)
            model.run()
            found.append(np.round(model.getSolution().col_value))
        return np.array(found)

    def check(ours, theirs):
        assert (ours.numpy() @ weights <= CAPACITY).all()
        np.testing.assert_allclose((ours.numpy() * rows).sum(1), (theirs * rows).sum(1), rtol=1e-9)

    common = {
        "work": f"Knapsack, {ITEMS} items, capacity {CAPACITY}, batch {BATCH}",
        "ours": lambda: structure.solve(scores),
        "check": check,
    }
    return [
        {**common, "against": "HiGHS, the model kept", "target": 200, "theirs": highs},
        {
            **common,
            "against": "numpy dynamic programme over the batch",
            "target": 3,
            "theirs": lambda: numpy_knapsack(rows, weights, CAPACITY),
        },
    ]
