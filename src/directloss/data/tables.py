"""Data for decisions, rankings, sequences and trees, read from the published files, each checked first."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import directloss.data.raw as raw
from directloss.data.formats import unpack
from directloss.data.images import data_folder
from directloss.errors import UserError

Folder = str | os.PathLike[str] | None
_Found = TypeVar("_Found")


@dataclass(frozen=True, eq=False)
class EnergyPrices:
    """Half-hour prices of 789 days: which half hours to run something in, so that the total weight fits?"""

    features: NDArray[np.float64]  # (days, 48, 8)
    prices: NDArray[np.float64]  # (days, 48)
    weights: NDArray[np.int64]  # (48,), of 3, 5 and 7, 240 in all; usual capacities are 60, 120 and 180


@dataclass(frozen=True, eq=False)
class Queries:
    """Documents that were found for queries, one query after the other."""

    features: NDArray[np.float32]  # (documents, p)
    grades: NDArray[np.int64]  # (documents,), how relevant: 0 to 4
    sizes: NDArray[np.int64]  # (queries,), the documents of each

    def padded(self) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
        """Features (queries, longest, p) and grades (queries, longest), 0 where the mask is False."""
        mask = np.arange(self.sizes.max()) < self.sizes[:, None]
        features = np.zeros((*mask.shape, self.features.shape[1]), np.float32)
        grades = np.zeros(mask.shape, np.int64)
        features[mask], grades[mask] = self.features, self.grades
        return features, grades, mask


@dataclass(frozen=True, eq=False)
class Letters:
    """Handwritten words, one after the other, without their first letters (capitals)."""

    images: NDArray[np.uint8]  # (letters, 16, 8), of 0 and 1
    labels: NDArray[np.int64]  # (letters,), 0 is a
    lengths: NDArray[np.int64]  # (words,)
    folds: NDArray[np.int64]  # (words,), 0 to 9

    def padded(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images (words, longest, 16, 8) and labels (words, longest), 0 beyond a word's length."""
        mask = np.arange(self.lengths.max()) < self.lengths[:, None]
        images, labels = np.zeros((*mask.shape, 16, 8), np.uint8), np.zeros(mask.shape, np.int64)
        images[mask], labels[mask] = self.images, self.labels
        return images, labels


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, their parts of speech, and the head of each: 0 is the root, j the word j."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]


def load_energy(data_dir: Folder = None, download: bool = True) -> EnergyPrices:
    """Real half-hour prices with features, from PredOpt's benchmarks."""

    def read(files: dict[str, bytes]) -> EnergyPrices:
        with np.load(io.BytesIO(files["Data.npz"]), allow_pickle=False) as arrays:
            both = [np.concatenate([arrays[f"{name}train"], arrays[f"{name}test"]]) for name in ("X_1g", "y_")]
            weights = arrays["weights"].astype(np.int64)
        features, prices = (part.astype(np.float64).reshape(-1, len(weights), *part.shape[1:]) for part in both)
        return EnergyPrices(features[..., 1:], prices, weights)  # the first is the number of the day's group

    return _read("energy-knapsack", data_dir, download, read)


def load_ranking(data_dir: Folder = None, download: bool = True) -> tuple[Queries, Queries]:
    """The training and test queries of LightGBM's ranking example."""

    def read(files: dict[str, bytes]) -> tuple[Queries, Queries]:
        parsed = {part: _libsvm(files[f"rank.{part}"]) for part in ("train", "test")}
        width = max(max(max(row) for row in rows) for _, rows in parsed.values())
        found = []
        for part, (grades, rows) in parsed.items():
            features = np.zeros((len(rows), width), np.float32)
            for row, entries in zip(features, rows, strict=True):
                row[[column - 1 for column in entries]] = list(entries.values())
            sizes = np.array(files[f"rank.{part}.query"].split(), np.int64)
            if sizes.sum() != len(rows):
                raise ValueError(f"{len(rows)} documents for queries of {sizes.sum()}")
            found.append(Queries(features, np.array(grades), sizes))
        return found[0], found[1]

    return _read("web-ranking", data_dir, download, read)


def load_letters(data_dir: Folder = None, download: bool = True) -> Letters:
    """R. Kassel's handwritten words in B. Taskar's form, with their ten folds."""

    def read(files: dict[str, bytes]) -> Letters:
        rows = [line.split(b"\t") for line in files["letter.data"].splitlines()]
        labels = np.array([row[1][0] - ord("a") for row in rows])
        images = np.array([row[6:134] for row in rows]).astype(np.uint8).reshape(-1, 16, 8)
        ends = np.flatnonzero([row[2] == b"-1" for row in rows])  # no letter follows
        folds = np.array([int(row[5]) for row in rows])[ends]
        return Letters(images, labels, np.diff(ends, prepend=-1), folds)

    return _read("letters", data_dir, download, read)


def load_treebank(data_dir: Folder = None, download: bool = True) -> dict[str, list[Sentence]]:
    """The English Web Treebank of Universal Dependencies: train, dev and test."""

    def read(files: dict[str, bytes]) -> dict[str, list[Sentence]]:
        return {part: _conllu(files[f"en_ewt-ud-{part}.conllu"].decode()) for part in ("train", "dev", "test")}

    return _read("ud-english-ewt", data_dir, download, read)


def _read(name: str, data_dir: Folder, download: bool, read: Callable[[dict[str, bytes]], _Found]) -> _Found:
    folder = data_folder(data_dir)
    raw.provide(name, folder, download)
    files = {file: unpack(data, file) for file, data in raw.read(name, folder)}
    try:
        return read(files)
    except (ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise UserError(f"the data set {name} cannot be read: {type(error).__name__}: {error}") from error


def _libsvm(data: bytes) -> tuple[list[int], list[dict[int, float]]]:
    """Grades, and of each line its features by number, counted from 1."""
    lines = [line.split() for line in data.decode().splitlines()]
    pairs: Any = ([entry.split(":") for entry in line[1:]] for line in lines)
    return [int(line[0]) for line in lines], [{int(key): float(value) for key, value in row} for row in pairs]


def _conllu(text: str) -> list[Sentence]:
    """Every sentence; ranges of words (3-4) and empty nodes (5.1) are left out."""
    found = []
    for block in text.strip().split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines() if line.split("\t")[0].isdigit()]
        words, tags = ((*(row[column] for row in rows),) for column in (1, 3))
        found.append(Sentence(words, tags, tuple(int(row[6]) for row in rows)))
    return found
