"""k nearest neighbours by direct loss: distances, the loss, and a scikit-learn classifier."""

from directloss.neighbors.classifier import DirectNeighborsClassifier
from directloss.neighbors.distance import negative_distance, without_diagonal
from directloss.neighbors.loss import NeighborLoss

__all__ = ["DirectNeighborsClassifier", "NeighborLoss", "negative_distance", "without_diagonal"]
