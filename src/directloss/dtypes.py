"""The dtypes of sums and of results."""

import torch
from torch import Tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """What numbers are added up in: sums in half precision are far off, and tie."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def to_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """``tensor.to(dtype)``, without asking torch where there is nothing to do, which would cost two microseconds."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def wide(tensor: Tensor) -> Tensor:
    """The tensor in the dtype that it is added up in."""
    return to_dtype(tensor, wide_dtype(tensor.dtype))
