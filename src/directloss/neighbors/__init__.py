"""k nearest neighbours: a loss for your own loop, and a scikit-learn classifier."""
