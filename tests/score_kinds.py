"""Scores to attack a maximiser with: random, tied, degenerate, badly scaled. How many instances a fuzz test solves."""

import os

import numpy as np

# ``make fuzz`` sets the variable to 200,000.
INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "2000"))

# Kinds whose values are small whole numbers are solved exactly, so their objectives must agree to the last bit.
WHOLE = {"ties", "constant", "binary"}
KINDS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "binary": lambda rng, shape: (rng.random(shape) < rng.random()).astype(float),
    "constant": lambda rng, shape: np.full(shape, float(rng.integers(-3, 4))),
    "huge": lambda rng, shape: 1e30 * rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "mixed magnitudes": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 13, shape),
    "large offset": lambda rng, shape: 1e6 + rng.standard_normal(shape),
    "few values": lambda rng, shape: np.round(rng.standard_normal(shape), 1),
}


def batches(size, instances=INSTANCES, seed=0):
    """So many instances in batches of ``size``: a generator and the kind, every kind in turn."""
    for index in range(-(-instances // size)):
        yield np.random.default_rng([seed, index]), sorted(KINDS)[index % len(KINDS)]
