"""Learning to rank: train NDCG itself, on lists of different lengths.

python learning_to_rank.py --epochs 20          # data: directloss data fetch web-ranking
"""

import argparse

import torch

import directloss as dl

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
epochs = parser.parse_args().epochs

torch.manual_seed(0)
train, test = ([torch.from_numpy(array) for array in part.padded()] for part in dl.data.load_ranking())
net = torch.nn.Sequential(torch.nn.Linear(300, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)


def ndcg(features, grades, mask):
    return dl.metrics.ndcg(net(features).squeeze(-1), grades, 3, mask=mask).mean().item()


features, grades, mask = train
discounts = 1 / torch.log2(torch.arange(2.0, mask.shape[1] + 2))
gains = 2.0**grades - 1
ideal = (gains.sort(-1, descending=True).values * discounts).sum(-1, keepdim=True)
cost = -gains / ideal.clamp_min(1)  # <cost, y> is minus NDCG
criterion = dl.DirectLoss(dl.Ranking(discounts))  # each call gives it the lists of its batch
for _ in range(epochs):
    for batch in torch.randperm(len(features)).split(20):
        structure = dl.Ranking(discounts, mask[batch])
        scores = net(features[batch]).squeeze(-1)
        optimizer.zero_grad()
        criterion(scores, cost[batch], structure=structure).backward()
        optimizer.step()
print(f"NDCG@3: {ndcg(*train):.3f} in training, {ndcg(*test):.3f} on new queries")
