"""From the bytes of a published file to arrays. Nothing in a file is trusted, whatever its checksum."""

import gzip
import io
import lzma
import math
import pickle
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from directloss.errors import UserError

Arrays = dict[str, NDArray[Any]]


def decode_idx(data: bytes, name: str) -> Arrays:
    """One of MNIST's four files, under the field of `ImageSet` that it is."""
    array = read_idx(data, name)
    return {f"{'test' if name.startswith('t10k') else 'train'}_{'images' if array.ndim == 3 else 'labels'}": array}


def decode_batch(data: bytes, name: str) -> Arrays:
    """One of CIFAR's six files, under the fields of `ImageSet` that it is a part of."""
    part = "test" if name.startswith("test") else "train"
    images, labels = read_batch(data, name)
    return {f"{part}_images": images, f"{part}_labels": labels}


def read_idx(data: bytes, name: str) -> NDArray[np.uint8]:
    """Read bytes in idx format: 0, 0, type (8 is uint8), number of axes; big-endian sizes; values."""
    data = unpack(data, name)
    axes = data[3] if data[:3] == b"\0\0\x08" and len(data) > 3 else 0
    if axes not in (1, 3):
        found = data[:4].hex() or "nothing"
        raise UserError(f"{name} is no idx file: it starts with {found}, not 00000803 (images) or 00000801 (labels)")
    start = 4 + 4 * axes
    shape = struct.unpack(f">{axes}I", data[4:start].ljust(4 * axes, b"\0"))
    if len(data) != start + math.prod(shape):
        raise UserError(f"{name} has {len(data)} bytes, but its header {shape} asks for {start + math.prod(shape)}")
    return np.frombuffer(data, np.uint8)[start:].reshape(shape)


def read_batch(data: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read the images and labels of a CIFAR batch, a pickle that may hold arrays and plain values only."""
    data = unpack(data, name)
    try:
        batch = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
        pixels, labels = batch[b"data"], np.array(batch[b"labels"], np.int64)
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3 * 32 * 32):
            raise ValueError(f"{len(labels)} labels with {pixels.dtype} {pixels.shape} pixels")
    except Exception as error:  # a broken pickle can raise anything
        raise UserError(f"{name} is no CIFAR batch: {type(error).__name__}: {error}") from error
    return pixels.reshape(-1, 3, 32, 32), labels


class _ArraysOnly(pickle.Unpickler):
    """Knows the three names that the pickle of an array needs. Any other could run code."""

    _NAMES = (("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"))

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._NAMES:
            raise pickle.UnpicklingError(f"refused to load {module}.{name}; do not use this file")
        return super().find_class(module, name)


def unpack(data: bytes, name: str) -> bytes:
    """Undo gzip or xz, which the first bytes tell; anything else is returned as it is."""
    try:
        if data.startswith(b"\x1f\x8b"):
            return gzip.decompress(data)
        return lzma.decompress(data) if data.startswith(b"\xfd7zXZ\0") else data
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{name} cannot be unpacked: {error}") from error
