"""Settings of a criterion that change with what its training shows."""

from typing import Any

from torch import Tensor, nn


class Policy(nn.Module):
    """Numbers that are found in training: one buffer in float64, saved and restored with the ``state_dict``."""

    value: Tensor

    def __init__(self, value: Tensor):
        super().__init__()
        self.register_buffer("value", value)

    def _apply(self, fn: Any, recurse: bool = True) -> "Policy":
        """Follow the module to another device, but keep float64: ``.half()`` must not round what was found."""
        kept = self.value
        super()._apply(fn, recurse)
        self.value = kept.to(self.value.device)
        return self
