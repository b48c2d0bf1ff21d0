"""Checkpoints: whole or not at all, with a checksum, for one configuration; nothing in them can execute code."""

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from directloss.errors import UserError
from directloss.files import write_atomically
from directloss.lab.store import Key

_DIGEST = 32  # bytes of SHA-256 in front


def save(path: Path, key: Key, state: dict[str, Any]) -> None:
    """Save tensors and plain values."""
    buffer = io.BytesIO()
    torch.save({**state, "config": dict(key.config)}, buffer)
    write_atomically(path, hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())


def restore(path: Path, key: Key, use: Callable[[dict[str, Any]], None]) -> None:
    """Call ``use`` with a saved state. Raise UserError, in one line, if it is not whole, or another configuration's."""
    content = path.read_bytes()
    if content[:2] != b"PK":  # the checkpoints of before had no checksum
        if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
            raise UserError(f"{path} is damaged: its checksum does not fit; delete it to start again")
        content = content[_DIGEST:]
    try:
        state = torch.load(io.BytesIO(content), weights_only=True)
        stored = state["config"]
    except Exception as error:
        raise UserError(f"{path} is not a checkpoint ({type(error).__name__}); delete it to start again") from None
    if stored != key.whole and (not isinstance(stored, dict) or {**key.defaults, **stored} != key.config):
        raise UserError(f"{path} is a checkpoint of another configuration; give another --checkpoints folder")
    try:
        use(state)
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(f"{path} is not a whole checkpoint ({why}); delete it to start again") from None
