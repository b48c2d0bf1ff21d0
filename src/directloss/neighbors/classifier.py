"""A k-nearest-neighbour classifier that learns its embedding: ``fit`` and ``predict`` as in scikit-learn."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, check_random_state, validate_data
from torch import Tensor, nn

from directloss.neighbors.loss import NeighborLoss
from directloss.neighbors.training import train
from directloss.nets import MLP, LeNet, ResNet9, seeded

_DOMINANT = 10  # times the median spread: a feature of another unit


class DirectNeighborsClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Learns an embedding in which the k nearest neighbours carry the right label, then votes.

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
        As for ``dl.NeighborLoss``; None finds one for each side.
    scale_features : bool or "auto"
        Features are centred, then divided by their own spread (True) or by one number for all (False). "auto" gives
        flat features their own if some would dominate: a spread more than ten times the median one.
    weights : "uniform" or "distance"
        Of the neighbours' votes.
    metric : "euclidean" or "cosine"
        Of the embeddings, in training and voting.
    class_weight : dict, "balanced" or None
        Of the classes, in the training loss and in the votes.
    early_stopping, validation_fraction, n_iter_no_change : bool, float, int
        Keep ``validation_fraction`` of the samples from training, stop after ``n_iter_no_change`` epochs without a
        better vote on them, and return to the best epoch. The kept samples vote in the end.
    warm_start : bool
        A further ``fit`` goes on with the module of the last.
    n_jobs, device : int or None, str
        Processes that look for neighbours, and where the embedding is trained and used.
    random_state : int, RandomState or None
        Of initialisation and batches.
    verbose : int
        1 shows a progress bar with the loss.

    Attributes
    ----------
    classes_ : array of the labels
    module_ : the trained embedding
    loss_curve_ : mean training loss of every epoch: the share of wrong labels among the neighbours
    validation_scores_ : accuracy on the kept samples of every epoch, with early stopping
    n_iter_ : epochs of training

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
        scale_features: bool | str = "auto",
        weights: str = "uniform",
        metric: str = "euclidean",
        class_weight: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        n_jobs: int | None = None,
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
        self.scale_features = scale_features
        self.weights = weights
        self.metric = metric
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "DirectNeighborsClassifier":  # noqa: N803
        """Learn the embedding of samples (n, features) or images (n, channels, height, width).

        ``sample_weight`` (n,) weighs samples in the training loss and in the votes; what has weight zero is not there.
        """
        X, y = self._validate(X, y, fit=True)  # noqa: N806
        check_classification_targets(y)
        self._check_parameters()
        weight = np.ones(len(X))
        if sample_weight is not None:
            weight = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
            if weight.shape != (len(X),) or weight.min() < 0:
                raise ValueError(f"sample_weight has shape {weight.shape}, expected {(len(X),)} and no number below 0")
            if not weight.any():
                raise ValueError("sample_weight is zero for every sample; at least two classes need some weight")
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]  # noqa: N806
        weight = weight * compute_sample_weight(self.class_weight, y)
        goes_on = self.warm_start and hasattr(self, "module_")
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"all {len(y)} samples are of one class, {classes[:1].tolist()}; a classifier needs two")
        if self.n_neighbors >= len(X):
            raise ValueError(f"n_neighbors is {self.n_neighbors}, but there are only {len(X)} samples")
        generator = torch.Generator().manual_seed(int(check_random_state(self.random_state).randint(2**31)))
        self.classes_ = classes
        if goes_on and self.mean_.shape[1:] != X.shape[1:]:
            raise ValueError(f"samples have shape {X.shape[1:]}, but warm_start goes on from {self.mean_.shape[1:]}")
        if not goes_on:
            self._measure(X)
            self.module_ = self._make_module(X.shape[1:], generator).to(self.device)
        self._train(self._to_tensor(X), labels, weight, generator)
        embedded = self._embed(X)
        self._n_features_out = embedded.shape[1]
        self._near = NearestNeighbors(n_neighbors=self.n_neighbors, metric=self.metric, n_jobs=self.n_jobs).fit(
            embedded
        )
        self._votes = np.eye(len(classes))[labels] * weight[:, None]
        return self

    def _validate(self, X: Any, y: Any = None, fit: bool = False) -> Any:  # noqa: N803
        """Numbers in float64, because centring comes first; images, which are large, in float32."""
        X = X.detach().cpu().numpy() if isinstance(X, Tensor) else X  # noqa: N806
        y = y.detach().cpu().numpy() if isinstance(y, Tensor) else y
        _check_shapes(X)
        dtypes = [np.float32, np.float64] if getattr(X, "ndim", 2) > 2 else [np.float64, np.float32]
        options: dict[str, Any] = {"dtype": dtypes, "allow_nd": True}
        with config_context(array_api_dispatch=False):
            if fit:
                return validate_data(self, X, y, ensure_min_samples=2, **options)
            return validate_data(self, X, reset=False, **options)

    def _check_parameters(self) -> None:
        for name in ("n_neighbors", "epochs", "n_iter_no_change"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        for name, allowed in (("weights", ("uniform", "distance")), ("metric", ("euclidean", "cosine"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {allowed}")
        if self.scale_features not in (True, False, "auto"):
            raise ValueError(f"scale_features is {self.scale_features!r}, expected True, False or 'auto'")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction is {self.validation_fraction}, expected more than 0 and less than 1")

    def _measure(self, X: np.ndarray) -> None:  # noqa: N803
        """The centre of the features, and what they are divided by."""
        self.mean_ = X.mean(0, keepdims=True, dtype=np.float64)
        centred = X - self.mean_
        each = centred.std(0, keepdims=True, dtype=np.float64)
        spread = each[each > 0]
        dominated = X.ndim == 2 and len(spread) > 1 and spread.max() > _DOMINANT * np.median(spread)
        if self.scale_features is True or (self.scale_features == "auto" and dominated):
            self.deviation_ = np.where(each > 0, each, 1.0)
            return
        if dominated:
            warnings.warn(
                f"the features' spreads go up to {spread.max():.3g}, {spread.max() / np.median(spread):.0f} times the "
                "median one: the largest decide alone who is near; give scale_features=True or a StandardScaler",
                stacklevel=3,
            )
        self.deviation_ = np.asarray(centred.std(dtype=np.float64) or 1.0)

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

    def _train(self, x: Tensor, labels: np.ndarray, weight: np.ndarray, generator: torch.Generator) -> None:
        kept = np.arange(len(x))
        held = kept[:0]
        if self.early_stopping:
            seed = int(torch.randint(2**31, (), generator=generator).item())
            fraction = {"test_size": self.validation_fraction, "random_state": seed}
            kept, held = train_test_split(kept, stratify=labels if np.bincount(labels).min() > 1 else None, **fraction)
        target = torch.from_numpy(labels).to(self.device)
        weighted = None if (weight == weight[0]).all() else torch.from_numpy(weight).to(self.device, torch.float32)
        self.loss_curve_, self.validation_scores_ = train(
            self.module_,
            NeighborLoss(self.n_neighbors, epsilon=self.epsilon),
            (x[kept], target[kept], None if weighted is None else weighted[kept]),
            (x[held], target[held]),
            generator,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            patience=self.n_iter_no_change,
            normalize=self.metric == "cosine",
            verbose=bool(self.verbose),
        )
        self.n_iter_ = len(self.loss_curve_)

    def _to_tensor(self, X: np.ndarray) -> Tensor:  # noqa: N803
        scaled = (X - self.mean_) / self.deviation_
        return torch.from_numpy(scaled.astype(np.float32, copy=False)).to(self.device)

    @torch.no_grad()
    def _embed(self, X: np.ndarray) -> np.ndarray:  # noqa: N803
        self.module_.eval()
        return np.concatenate([self.module_(part).cpu().numpy() for part in self._to_tensor(X).split(1024)])

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """The embeddings of samples, (n, dimensions)."""
        check_is_fitted(self)
        X = self._validate(X)  # noqa: N806
        if X.shape[1:] != self.mean_.shape[1:]:
            raise ValueError(f"samples have shape {X.shape[1:]}, but were fitted with {self.mean_.shape[1:]}")
        return self._embed(X)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The label that most of the k nearest training samples carry."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The share of each label, in the order of ``classes_``, in the votes of the k nearest training samples.

        A sample's vote has its weight, and that of its class.
        """
        distances, indices = self.kneighbors(X)
        votes = self._votes[indices]
        if self.weights == "distance":
            zero = distances == 0  # what coincides votes alone
            nearness = np.where(zero.any(1, keepdims=True), zero, 1 / np.where(zero, 1.0, distances))
            votes = votes * nearness[:, :, None]
        shares = votes.sum(1)
        return np.asarray(shares / shares.sum(1, keepdims=True))

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803
        """Distances to the nearest training samples in the embedding, and their indices, nearest first.

        Without samples, those of the training samples, none of which is its own neighbour.
        """
        check_is_fitted(self)
        embedded = None if X is None else np.asarray(self.transform(X), np.float32)
        distances, indices = self._near.kneighbors(embedded, n_neighbors)
        return distances, indices


def _check_shapes(samples: Any) -> None:
    """Raise ValueError if the items of a list are arrays of several shapes."""
    shapes = {item.shape for item in samples if hasattr(item, "shape")} if isinstance(samples, list | tuple) else set()
    if len(shapes) > 1:
        raise ValueError(f"samples have different shapes, {sorted(shapes)}; resize or pad images to one size")
