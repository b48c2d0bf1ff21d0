"""Predict costs, then take the cheapest path: train the prediction by what the path really costs.

    python predict_then_optimise.py --epochs 20

Data and net are those of PyEPO's notebook 03: five features, a 5 x 5 grid, costs of degree 4, a linear model.
"""

import argparse

import torch

import directloss as dl

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
epochs = parser.parse_args().epochs

torch.manual_seed(0)
x, cost = (torch.as_tensor(array, dtype=torch.float32) for array in dl.data.shortest_path(2000))
x_train, cost_train, x_test, cost_test = x[:1000], cost[:1000], x[1000:], cost[1000:]
structure = dl.GridPath(shape=(5, 5))


def train(loss):
    net = torch.nn.Linear(5, 40)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(epochs):
        for batch in torch.randperm(1000).split(32):
            optimizer.zero_grad()
            loss(net(x_train[batch]), cost_train[batch]).backward()
            optimizer.step()
    return dl.regret(net(x_test), cost_test, structure, normalize=True).item()


def squares(scores, cost):
    return ((scores + cost) ** 2).mean()  # scores predict -cost: structures maximise


for name, loss in (("least squares", squares), ("direct loss", dl.DirectLoss(structure))):
    print(f"{name}: decisions cost {100 * train(loss):.1f} % more than the best ones")
