"""Whether code runs inside a transform of ``torch.func``, or while a backward pass recomputes a forward pass.

The only place that asks torch by names that are not public; pyproject.toml bounds torch's version for it.
"""

from collections.abc import Callable

import torch

# True inside ``torch.func.vmap``, ``grad`` and their like, where a tensor's numbers may be out of reach. Not wrapped,
# because a call of any rule asks several times.
inside_transform: Callable[[], bool] = torch._C._are_functorch_transforms_active


def inside_backward() -> bool:
    """True while autograd runs: a forward pass there recomputes one (activation checkpoints)."""
    return bool(torch._C._current_graph_task_id() != -1)
