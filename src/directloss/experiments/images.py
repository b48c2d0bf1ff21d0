"""Images of the neighbours' experiment: their split, their augmentation, and the vote of the nearest."""

import numpy as np
import torch
from torch import Tensor, nn

from directloss.data import ImageSet
from directloss.errors import UserError


class Images:
    """An image set split for an experiment: training, validation and test, as uint8 tensors, normalised in batches."""

    def __init__(self, images: ImageSet, validation: int):
        if validation >= len(images.train_labels):
            raise UserError(
                f"{validation} images for validation, but {images.name} has {len(images.train_labels)} for training"
            )
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(images.train_labels)))
        held, kept = order[:validation].sort().values, order[validation:].sort().values
        every, labels = torch.from_numpy(np.array(images.train_images)), torch.from_numpy(np.array(images.train_labels))
        self.train, self.train_labels = every[kept], labels[kept]
        self.held, self.held_labels = every[held], labels[held]
        self.test = torch.from_numpy(np.array(images.test_images))
        self.test_labels = torch.from_numpy(np.array(images.test_labels))
        self.classes = len(images.classes)
        sample = self.train[:10_000].float()
        self.mean = sample.mean((0, 2, 3), keepdim=True)
        self.deviation = sample.std((0, 2, 3), keepdim=True).clamp_min(1.0)

    def normalize(self, images: Tensor) -> Tensor:
        """uint8 to floats of mean zero and unit deviation."""
        return (images.float() - self.mean) / self.deviation


def augment(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Mirror half of the images ("flip"), move each by up to two pixels ("shift"), both ("shift-flip") or "none"."""
    count, _, height, width = images.shape
    if "flip" in kind:
        mirrored = torch.rand(count, generator=generator) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    if "shift" not in kind:
        return images
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    down, right = torch.randint(5, (2, count, 1), generator=generator)
    rows, columns = down + torch.arange(height), right + torch.arange(width)
    return padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


@torch.no_grad()
def embed(net: nn.Module, images: Images, pictures: Tensor, chunk: int = 500) -> Tensor:
    """Embeddings of uint8 images, (N, D)."""
    net.eval()
    return torch.cat([net(images.normalize(part)) for part in pictures.split(chunk)])


@torch.no_grad()
def accuracy(
    net: nn.Module, k: int, images: Images, pictures: Tensor, labels: Tensor, bank_size: int | None = None
) -> float:
    """The share that a majority of the k nearest training images labels rightly; of equal votes the nearer counts."""
    bank, queries = embed(net, images, images.train[:bank_size]), embed(net, images, pictures)
    right = 0
    for part, truth in zip(queries.split(250), labels.split(250), strict=True):
        nearest = torch.cdist(part, bank).topk(k, largest=False).indices
        votes = nn.functional.one_hot(images.train_labels[nearest], images.classes).double()
        nearer = 1 + 1e-6 * torch.arange(k, 0, -1, dtype=torch.float64)
        right += int(((votes * nearer.unsqueeze(-1)).sum(1).argmax(1) == truth).sum())
    return right / len(labels)
