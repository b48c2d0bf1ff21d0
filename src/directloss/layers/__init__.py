"""Layers: ``layer(scores, structure, ...) -> y``, differentiable, one a file."""
