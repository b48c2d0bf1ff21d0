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


def augment(
    images: Tensor, kind: str, generator: torch.Generator, turned: Tensor | None = None, side: int = 8
) -> Tensor:
    """Vary images by words that are joined with "-".

    "flip" mirrors half of them at random, and "alternate" those that are ``turned`` (B,). "shift" moves each by up to
    two pixels over a black border, "reflect" over one that repeats the image. "erase" makes a square of so many pixels
    a side grey, somewhere in each. "none" does nothing.
    """
    words = kind.split("-")
    if "flip" in words:
        turned = torch.rand(len(images), generator=generator) < 0.5
    if turned is not None and ("flip" in words or "alternate" in words):
        images = torch.where(turned[:, None, None, None], images.flip(-1), images)
    if "shift" in words or "reflect" in words:
        images = _move(images, "reflect" if "reflect" in words else "constant", generator)
    return _erase(images, side, generator) if "erase" in words else images


def _move(images: Tensor, border: str, generator: torch.Generator, most: int = 2) -> Tensor:
    count, _, height, width = images.shape
    # Reflection is for floating-point numbers only.
    padded = nn.functional.pad(images.float(), [most] * 4, border).to(images.dtype)
    down, right = torch.randint(2 * most + 1, (2, count, 1), generator=generator)
    rows, columns = down + torch.arange(height), right + torch.arange(width)
    return padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def _erase(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """A square whose centre is anywhere in the image gets the mean of the image's own colours."""
    count, _, height, width = images.shape
    centres = (torch.rand(2, count, 1, generator=generator) * torch.tensor([height, width])[:, None, None]).floor()
    top, left = centres - side // 2
    rows, columns = torch.arange(height) - top, torch.arange(width) - left
    inside = ((rows >= 0) & (rows < side))[:, :, None] & ((columns >= 0) & (columns < side))[:, None, :]
    grey = images.float().mean((2, 3), keepdim=True).to(images.dtype)
    return torch.where(inside.unsqueeze(1), grey, images)


@torch.no_grad()
def embed(net: nn.Module, images: Images, pictures: Tensor, chunk: int = 500) -> Tensor:
    """Embeddings of uint8 images, (N, D)."""
    net.eval()
    parts = [net(images.normalize(part)) for part in pictures.split(chunk)]
    return torch.cat(parts).float()  # also where the net computes in another precision


def accuracy(k: int, images: Images, bank: Tensor, queries: Tensor, labels: Tensor) -> float:
    """The share that a majority of the k nearest in the bank labels rightly; of equal votes the nearer counts.

    ``bank`` are embeddings of the first training images.
    """
    right = 0
    for part, truth in zip(queries.split(250), labels.split(250), strict=True):
        nearest = torch.cdist(part, bank).topk(k, largest=False).indices
        votes = nn.functional.one_hot(images.train_labels[nearest], images.classes).double()
        nearer = 1 + 1e-6 * torch.arange(k, 0, -1, dtype=torch.float64)
        right += int(((votes * nearer.unsqueeze(-1)).sum(1).argmax(1) == truth).sum())
    return right / len(labels)
