"""An integer program of your own: which projects to fund, if some exclude each other?

    python my_integer_program.py --epochs 10        # needs directloss[highs]

Values are predicted from features; the budget and "at most one of these two" are constraints of the program.
"""

import argparse

import torch

import directloss as dl

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
epochs = parser.parse_args().epochs

torch.manual_seed(0)
prices = torch.tensor([[4.0, 6.0, 3.0, 5.0, 7.0, 2.0]])  # of six projects, with a budget of 12
exclude = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 1.0, 0.0]])
program = dl.Program(A_ub=torch.cat([prices, exclude]), b_ub=torch.tensor([12.0, 1.0, 1.0]), integer=True)

x = torch.randn(200, 4)
value = (x @ torch.randn(4, 6) + 2).clamp_min(0) ** 2
criterion = dl.DirectLoss(program)
net = torch.nn.Linear(4, 6)
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)


def lost():
    return 100 * dl.regret(net(x[100:]), -value[100:], program, normalize=True).item()  # we maximise: cost = -value


print(f"untrained: {lost():.0f} % of the best value is lost")
for _ in range(epochs):
    for batch in torch.randperm(100).split(25):
        optimizer.zero_grad()
        criterion(net(x[batch]), -value[batch]).backward()
        optimizer.step()
print(f"trained:   {lost():.0f} %")
