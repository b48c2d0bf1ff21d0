"""What a user's own functions, data and structures are, as a short text: equal for equal ones, in any process."""

import functools
import hashlib
import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def fingerprint(*things: Any) -> str:
    """A digest of data by value, of functions by source and by what they close over, of others by what they say."""
    digest = hashlib.sha256()
    for thing in things:
        for piece in _pieces(thing):
            digest.update(piece if isinstance(piece, bytes) else piece.encode())
            digest.update(b"\0")
    return digest.hexdigest()[:16]


def _pieces(thing: Any) -> list[bytes | str]:
    if isinstance(thing, torch.Tensor):
        thing = thing.detach().cpu().contiguous()
        return [str((thing.dtype, thing.shape)), thing.flatten().view(torch.uint8).numpy().tobytes()]
    if isinstance(thing, np.ndarray):
        return [str((thing.dtype, thing.shape)), np.ascontiguousarray(thing).tobytes()]
    if isinstance(thing, functools.partial):
        return _pieces([thing.func, thing.args, thing.keywords])
    if inspect.isfunction(thing):
        closed = [cell.cell_contents for cell in thing.__closure__ or ()]
        return [_source(thing), *_pieces([closed, thing.__defaults__, thing.__kwdefaults__])]
    if isinstance(thing, Mapping):
        return [piece for key, value in thing.items() for piece in (str(key), *_pieces(value))]
    if isinstance(thing, list | tuple):
        return [str(len(thing)), *(piece for one in thing for piece in _pieces(one))]
    if isinstance(thing, torch.nn.Module):
        return [repr(thing), *_pieces(thing.state_dict())]
    plain = re.sub(r" at 0x[0-9a-f]+", "", repr(thing))
    inside = vars(thing) if hasattr(thing, "__dict__") and not inspect.isclass(thing) else {}
    return [plain, *_pieces({name: value for name, value in inside.items() if not callable(value)})]


def _source(function: Any) -> str:
    """Its text, or where there is none (an interactive session) its instructions."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = function.__code__
        return str((code.co_code, [const for const in code.co_consts if not inspect.iscode(const)], code.co_names))
