"""Data for decisions, rankings, sequences and trees: what is known about the published files, and the generators."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

import directloss as dl
from directloss.data import tables
from directloss.errors import UserError

REAL = Path(os.environ.get("DIRECTLOSS_DATA_DIR", "nowhere"))
here = pytest.mark.skipif(not (REAL / "web-ranking").is_dir(), reason="the published files are not here")


@here
def test_energy_has_789_days_of_48_prices():
    energy = dl.data.load_energy()
    assert (energy.features.shape, energy.prices.shape) == ((789, 48, 8), (789, 48))
    assert set(energy.weights) == {3, 5, 7}
    assert energy.weights.sum() == 240
    assert np.isfinite(energy.features).all()


@here
def test_rankings_have_their_queries_and_grades():
    train, test = dl.data.load_ranking()
    assert (len(train.sizes), len(train.grades), len(test.sizes), len(test.grades)) == (201, 3005, 50, 768)
    assert set(train.grades) == set(range(5))
    assert train.features.shape[1] == test.features.shape[1] == 300
    # The first line of the test file begins "2 1:0.74 6:0.87".
    assert test.grades[0] == 2
    np.testing.assert_allclose(test.features[0, [0, 1, 5]], [0.74, 0, 0.87], rtol=1e-6)
    features, grades, mask = test.padded()
    assert mask.sum() == 768
    np.testing.assert_array_equal(features[mask], test.features)
    assert grades[~mask].sum() == 0


@here
def test_letters_are_words():
    letters = dl.data.load_letters()
    assert (len(letters.labels), len(letters.lengths)) == (52152, 6877)
    assert letters.lengths.sum() == 52152
    assert set(letters.folds) == set(range(10))
    assert set(np.unique(letters.images)) == {0, 1}
    first = letters.labels[: letters.lengths[0]]
    assert "".join(chr(ord("a") + letter) for letter in first) == "ommanding"
    images, labels = letters.padded()
    assert images.shape == (6877, letters.lengths.max(), 16, 8)
    assert (labels > 0).sum() == (letters.labels > 0).sum()


@here
def test_trees_have_one_root_and_heads_within_the_sentence():
    bank = dl.data.load_treebank()
    assert {part: len(sentences) for part, sentences in bank.items()} == {"train": 12544, "dev": 2001, "test": 2077}
    assert sum(len(sentence.words) for sentence in bank["train"]) == 204_577
    for sentence in bank["test"]:
        assert sentence.heads.count(0) == 1
        assert all(0 <= head <= len(sentence.words) for head in sentence.heads)


def test_what_has_no_images_names_its_reader():
    with pytest.raises(UserError, match=r"letters has no images; directloss.data.load_letters\(\) reads it"):
        dl.data.load("letters")
    assert all(hasattr(dl.data, source.reader) for source in dl.data.SOURCES.values())


def test_missing_files_are_one_line_and_altered_ones_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"energy-knapsack was not found .* download is off"):
        dl.data.load_energy(tmp_path, download=False)
    (tmp_path / "energy-knapsack").mkdir()
    (tmp_path / "energy-knapsack/Data.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match="altered or cut short"):
        dl.data.load_energy(tmp_path)


def test_a_file_that_is_not_what_it_should_be_is_one_line(tmp_path, monkeypatch):
    """Whatever its checksum: a pickle in the archive of prices is refused, not loaded."""
    np.savez(tmp_path / "bad.npz", X_1gtrain=np.array([{}], dtype=object))
    bad = (tmp_path / "bad.npz").read_bytes()
    monkeypatch.setattr(tables.raw, "provide", lambda *_: None)
    monkeypatch.setattr(tables.raw, "read", lambda *_: [("Data.npz", bad)])
    with pytest.raises(UserError, match="energy-knapsack cannot be read"):
        dl.data.load_energy()


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def test_costs_are_pyepos_number_for_number():
    """The digests are those of PyEPO 2.2.7's genData with the arguments of its notebooks 03 and 05."""
    x, cost = dl.data.shortest_path(2000, 5, (5, 5), degree=4, width=0.5, seed=42)
    assert (x.dtype, cost.dtype, cost.shape) == (np.float64, np.float32, (2000, 40))
    np.testing.assert_allclose([x[0, 0], *cost[0, :2], cost[-1, -1]], [-0.68002472, 0.3539176, 1.0785899, 0.05649983])
    assert digest(x, cost) == "4508f70c5d6b139d"
    weights, x, values = dl.data.knapsack(1100, 5, 16, 2, degree=6, width=0.5, seed=135)
    np.testing.assert_array_equal(values[0, :5], [3, 3, 3, 7, 1])
    assert digest(weights, x, values) == "a58d0973f44ac444"
