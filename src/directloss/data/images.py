"""Loading a data set: decoded arrays if they are there, else from the published files."""

import hashlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import directloss.data.raw as raw
from directloss.data.formats import Arrays
from directloss.data.registry import Source, find_source
from directloss.errors import UserError, need
from directloss.files import write_atomically

_HOME = "~/.cache/directloss"
_SUMS = "sha256.json"  # beside the decoded arrays


@dataclass(frozen=True, eq=False)
class ImageSet:
    """The images and labels of a data set. The arrays are read-only."""

    name: str
    train_images: NDArray[np.uint8]  # (N, channels, height, width)
    train_labels: NDArray[np.int64]  # (N,)
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    classes: tuple[str, ...]


def load(name: str, data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> ImageSet:
    """Load ``mnist``, ``fashion-mnist``, ``cifar-10`` or ``digits``.

    Files that are not in the folder (see `data_folder`) are downloaded, unless ``download`` is false. The first time,
    files are checked and decoded; from then on the decoded arrays are memory-mapped.

    >>> load("digits").train_images.shape
    (1442, 1, 8, 8)
    """
    source, folder = find_source(name), data_folder(data_dir)
    if not source.shape:
        raise UserError(f"the data set {name} has no images; directloss.data.{source.reader}() reads it")
    if not source.files:
        return ImageSet(name, **_digits(), classes=source.classes)
    decoded = find_decoded(name, folder)
    if decoded is None:
        raw.provide(name, folder, download)
        _decode(name, folder)
        decoded = find_decoded(name, folder)
        assert decoded, "what was just decoded is there"
    return ImageSet(name, **decoded[1], classes=source.classes)


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """``data_dir``, or else the environment's DIRECTLOSS_DATA_DIR, or else ``~/.cache/directloss``."""
    return Path(data_dir or os.environ.get("DIRECTLOSS_DATA_DIR") or _HOME).expanduser()


def find_decoded(name: str, folder: Path) -> tuple[Path, Arrays] | None:
    """The arrays of a data set, and where they are, if all of them have been decoded and are whole."""
    layout = _layout(find_source(name))
    for place in decoded_folders(name, folder):
        arrays = {field: _memory_map(place / f"{field}.npy", *expected) for field, expected in layout.items()}
        whole = {field: array for field, array in arrays.items() if array is not None}
        if len(whole) == len(arrays) and not any(find_altered(place).values()):
            return place, whole
    return None


def find_altered(place: Path) -> dict[Path, str]:
    """Every decoded array in a folder, and what is wrong with it; nothing, if its checksum fits."""
    try:
        sums = json.loads((place / _SUMS).read_text())
        sums = sums if isinstance(sums, dict) else {}
    except (OSError, ValueError):
        sums = {}
    found = {}
    for path in sorted(place.glob("*.npy")):
        digest = raw.digest(path)
        fits = sums.get(path.name) == digest
        found[path] = "" if fits else f"SHA-256 {digest}, expected {sums.get(path.name, 'one that is not recorded')}"
    return found


def decoded_folders(name: str, folder: Path) -> tuple[Path, Path]:
    """Beside the published files, or in the home folder; named after their checksums, so that it cannot be stale."""
    place = f"decoded/{name}-{find_source(name).key}"
    return folder / place, Path(_HOME).expanduser() / place


def _layout(source: Source) -> dict[str, tuple[tuple[int, ...], type[np.generic]]]:
    """The shape and type of each array of an `ImageSet`."""
    return {
        f"{part}_{kind}": ((count, *shape), dtype)
        for part, count in (("train", source.train), ("test", source.test))
        for kind, shape, dtype in (("images", source.shape, np.uint8), ("labels", (), np.int64))
    }


def _memory_map(path: Path, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any] | None:
    """The array in ``path``, unless the file is missing, cut short, or another array's."""
    try:
        array = np.load(path, mmap_mode="r")
        whole = path.stat().st_size == array.offset + array.nbytes
        return array if whole and array.shape == shape and array.dtype == dtype else None
    except Exception:  # whatever is wrong with it, it is decoded again
        return None


def _decode(name: str, folder: Path) -> None:
    """Decode the published files. Processes that do so at once write the same bytes, each file whole."""
    source = find_source(name)
    beside, home = decoded_folders(name, folder)
    place = beside if _is_writable(beside) else home
    pieces = {file: source.decode(data, file) for file, data in raw.read(name, folder)}
    sums = {}
    for field, (shape, dtype) in _layout(source).items():
        array = np.concatenate([pieces[file][field] for file in source.files if field in pieces[file]])
        buffer = io.BytesIO()
        np.save(buffer, array.reshape(shape).astype(dtype, copy=False))
        sums[f"{field}.npy"] = hashlib.sha256(buffer.getbuffer()).hexdigest()
        write_atomically(place / f"{field}.npy", buffer.getvalue())
    write_atomically(place / _SUMS, json.dumps(sums, indent=1))


def _is_writable(place: Path) -> bool:
    """Whether ``place`` can be made. Root could write anywhere, but a folder marked read-only is left alone."""
    nearest = next(folder for folder in (place, *place.parents) if folder.is_dir())
    return os.access(nearest, os.W_OK) and bool(nearest.stat().st_mode & 0o222)


def _digits() -> Arrays:
    """Scikit-learn's digits, grey levels 0..16 stretched to 0..255; every fifth image of each class is for testing."""
    need("sklearn", "the data set digits", extra="sklearn")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = np.round(bunch.images[:, None] * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)
    test = np.tril(labels[:, None] == labels).sum(1) % 5 == 0  # how many of its class there are up to each image
    arrays = {
        "train_images": images[~test],
        "train_labels": labels[~test],
        "test_images": images[test],
        "test_labels": labels[test],
    }
    for array in arrays.values():
        array.flags.writeable = False
    return arrays
