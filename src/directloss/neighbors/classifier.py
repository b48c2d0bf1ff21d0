"""A k-nearest-neighbour classifier that learns its embedding: ``fit`` and ``predict`` as in scikit-learn."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor, nn

from directloss.neighbors.loss import NeighborLoss
from directloss.nets import MLP, LeNet, ResNet9, seeded


class DirectNeighborsClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns an embedding in which the k nearest neighbours carry the right label, then votes.

    Features are centred and divided by one number for all of them: as in any search for neighbours, those of other
    units than the rest should be scaled before, e.g. by ``StandardScaler`` in a ``Pipeline``.

    Parameters
    ----------
    n_neighbors : int
        Neighbours that are trained for and that vote.
    module : callable or None
        Called with the shape of one sample, returns a ``torch.nn.Module`` that embeds a batch. None chooses: an MLP for
        flat features, a LeNet for grey images (channels, height, width) of 16 pixels or more, else a ResNet-9.
    epochs : int
        Of training with Adam.
    batch_size : int
        In a batch every sample is a query of all others.
    learning_rate : float
        At the start; it falls linearly to zero.
    epsilon : float or None
        As for ``dl.NeighborLoss``; None is its default, ``n_neighbors``.
    device : str
        Where the embedding is trained and used.
    random_state : int, RandomState or None
        Of initialisation and batches.
    verbose : int
        1 shows a progress bar with the loss.

    Attributes
    ----------
    classes_ : array of the labels
    module_ : the trained embedding
    loss_curve_ : mean training loss of every epoch: the share of wrong labels among the neighbours

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from directloss import DirectNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(DirectNeighborsClassifier(epochs=10, random_state=0).fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        module: Callable[[tuple[int, ...]], nn.Module] | None = None,
        epochs: int = 30,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        epsilon: float | None = None,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_neighbors = n_neighbors
        self.module = module
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.epsilon = epsilon
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: Any, y: Any) -> "DirectNeighborsClassifier":  # noqa: N803
        """Learn the embedding of samples (n, features) or images (n, channels, height, width)."""
        _check_shapes(X)
        X, y = validate_data(self, X, y, dtype=np.float32, allow_nd=True, ensure_min_samples=2)  # noqa: N806
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"all {len(y)} samples are of one class, {self.classes_[0]!r}; a classifier needs at least two"
            )
        for name in ("n_neighbors", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.n_neighbors >= len(X):
            raise ValueError(f"n_neighbors is {self.n_neighbors}, but there are only {len(X)} samples")
        seed = check_random_state(self.random_state).randint(2**31)
        generator = torch.Generator().manual_seed(int(seed))
        self.mean_ = X.mean(0, keepdims=True, dtype=np.float64).astype(np.float32)
        self.deviation_ = np.float32((X - self.mean_).std(dtype=np.float64) or 1)
        self.module_ = self._make_module(X.shape[1:], generator).to(self.device)
        self._train(self._to_tensor(X), torch.from_numpy(labels).to(self.device), generator)
        self._vote = KNeighborsClassifier(self.n_neighbors).fit(self._embed(X), labels)
        return self

    def _make_module(self, shape: tuple[int, ...], generator: torch.Generator) -> nn.Module:
        if self.module is not None:
            with seeded(generator):
                return self.module(shape)
        if len(shape) == 1:
            return MLP(shape[0], generator=generator)
        if len(shape) != 3:
            raise ValueError(f"samples have shape {shape}; expected (features,) or (channels, height, width)")
        if shape[0] == 1 and shape[1] == shape[2] >= 16:
            return LeNet(1, shape[1], generator=generator)
        return ResNet9(shape[0], width=16, generator=generator)

    def _train(self, x: Tensor, labels: Tensor, generator: torch.Generator) -> None:
        optimizer = torch.optim.Adam(self.module_.parameters(), lr=self.learning_rate)
        criterion = NeighborLoss(self.n_neighbors, epsilon=self.epsilon)
        batches = max(1, min(round(len(x) / max(self.batch_size, 1)), len(x) // (self.n_neighbors + 1)))
        self.loss_curve_: list[float] = []
        with _progress(self.epochs, bool(self.verbose)) as advance:
            for epoch in range(self.epochs):
                self.module_.train()
                total = 0.0
                for index, batch in enumerate(torch.randperm(len(x), generator=generator).tensor_split(batches)):
                    done = (epoch + index / batches) / self.epochs
                    for group in optimizer.param_groups:
                        group["lr"] = self.learning_rate * (1 - done)
                    optimizer.zero_grad()
                    loss = criterion(self.module_(x[batch]), labels[batch])
                    loss.backward()
                    optimizer.step()
                    total += loss.item() * len(batch)
                self.loss_curve_.append(total / len(x))
                advance(self.loss_curve_[-1])

    def _to_tensor(self, X: np.ndarray) -> Tensor:  # noqa: N803
        return torch.from_numpy((X - self.mean_) / self.deviation_).to(self.device)

    @torch.no_grad()
    def _embed(self, X: np.ndarray) -> np.ndarray:  # noqa: N803
        self.module_.eval()
        return np.concatenate([self.module_(part).cpu().numpy() for part in self._to_tensor(X).split(1024)])

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """The embeddings of samples, (n, dimensions)."""
        check_is_fitted(self)
        _check_shapes(X)
        X = validate_data(self, X, dtype=np.float32, allow_nd=True, reset=False)  # noqa: N806
        if X.shape[1:] != self.mean_.shape[1:]:
            raise ValueError(f"samples have shape {X.shape[1:]}, but were fitted with {self.mean_.shape[1:]}")
        return self._embed(X)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The label that most of the k nearest training samples carry."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The share of each label, in the order of ``classes_``, among the k nearest training samples."""
        embedded = self.transform(X)
        return np.asarray(self._vote.predict_proba(embedded))

    def kneighbors(self, X: Any, n_neighbors: int | None = None) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803
        """Distances to the nearest training samples in the embedding, and their indices, nearest first."""
        embedded = self.transform(X)
        distances, indices = self._vote.kneighbors(embedded, n_neighbors)
        return distances, indices


def _check_shapes(samples: Any) -> None:
    """Say so where the items of a list are arrays of several shapes."""
    shapes = {item.shape for item in samples if hasattr(item, "shape")} if isinstance(samples, list | tuple) else set()
    if len(shapes) > 1:
        raise ValueError(f"samples have different shapes, {sorted(shapes)}; resize or pad images to one size")


@contextmanager
def _progress(epochs: int, visible: bool) -> Iterator[Callable[[float], None]]:
    """A bar over the epochs, with the last one's loss."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, disable=not visible) as progress:
        task = progress.add_task("fit", total=epochs)
        yield lambda loss: progress.update(task, advance=1, description=f"fit, wrong neighbours {100 * loss:.1f} %")
