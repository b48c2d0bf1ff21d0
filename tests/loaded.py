"""What every forked command needs, with its kernels: imported once, by the process that they are forked from."""

import distributed  # noqa: F401
import torch

import directloss.cli  # noqa: F401
from directloss.experiments import neighbor_training, sorting, sorting_stack  # noqa: F401

torch.set_num_threads(1)
for method in ("direct1", "dsl"):
    list(sorting_stack.train(sorting.Config(method, 3, max_epochs=1), [0]))
