"""Image data sets: any layout gives the published arrays, and nothing that is not as published is ever decoded."""

import gzip
import hashlib
import io
import lzma
import multiprocessing
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tracemalloc
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pooch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from directloss import files
from directloss.cli import main
from directloss.data import SOURCES, Source, command, data_folder, formats, load
from directloss.data.formats import decode_batch, decode_idx, read_batch, read_idx
from directloss.errors import UserError

REAL = Path(os.environ.get("DIRECTLOSS_DATA_DIR", "no such folder"))
FIELDS = ("train_images", "train_labels", "test_images", "test_labels")
RANDOM = np.random.default_rng(0)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def batch(pixels, labels):
    """A CIFAR batch as its authors' NumPy named things."""
    pickled = pickle.dumps({b"data": pixels, b"labels": labels}, protocol=3)
    return pickled.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def tar(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in reversed(files.items()):  # in no helpful order, as the real one
            member = tarfile.TarInfo(f"tiny-batches-py/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def arrays(train, test, shape):
    sizes = {"train_images": (train, *shape), "train_labels": train, "test_images": (test, *shape), "test_labels": test}
    return {name: RANDOM.integers(0, 10 if "labels" in name else 256, size) for name, size in sizes.items()}


def forms(files, suffix, compress):
    return {name: {"": sha256(data), suffix: sha256(compress(data))} for name, data in files.items()}


EXPECTED = {"tiny-mnist": arrays(7, 3, (1, 5, 4)), "tiny-cifar": arrays(4, 3, (3, 32, 32))}
BYTES = {name: array.astype(np.uint8) for name, array in EXPECTED["tiny-mnist"].items()}
IDX = {
    "train-images-idx3-ubyte": idx(BYTES["train_images"][:, 0]),
    "train-labels-idx1-ubyte": idx(BYTES["train_labels"]),
    "t10k-images-idx3-ubyte": idx(BYTES["test_images"][:, 0]),
    "t10k-labels-idx1-ubyte": idx(BYTES["test_labels"]),
}
PIXELS = {
    name: EXPECTED["tiny-cifar"][f"{name}_images"].reshape(-1, 3072).astype(np.uint8) for name in ("train", "test")
}
LABELS = {name: EXPECTED["tiny-cifar"][f"{name}_labels"].tolist() for name in ("train", "test")}
BATCHES = {
    "data_batch_1": batch(PIXELS["train"][:3], LABELS["train"][:3]),
    "data_batch_2": batch(PIXELS["train"][3:], LABELS["train"][3:]),
    "test_batch": batch(PIXELS["test"], LABELS["test"]),
}
ARCHIVE = tar(BATCHES)
ZIP = partial(gzip.compress, mtime=0)
TINY = {
    "tiny-mnist": Source(
        shape=(1, 5, 4),
        train=7,
        test=3,
        classes=tuple("0123456789"),
        decode=decode_idx,
        folders=("tiny-mnist", "TinyMNIST/raw"),
        files=forms(IDX, ".gz", ZIP),
    ),
    "tiny-cifar": Source(
        shape=(3, 32, 32),
        train=4,
        test=3,
        classes=tuple("abcdefghij"),
        decode=decode_batch,
        folders=("tiny-cifar", "tiny-batches-py", "."),
        files=forms(BATCHES, ".xz", lzma.compress),
        archive={"tiny-python.tar.gz": {"": sha256(ARCHIVE)}},
    ),
}
LAYOUTS = {
    "ours-gz": ("tiny-mnist", {f"tiny-mnist/{name}.gz": ZIP(data) for name, data in IDX.items()}),
    "ours-idx": ("tiny-mnist", {f"tiny-mnist/{name}": data for name, data in IDX.items()}),
    "torchvision-gz": ("tiny-mnist", {f"TinyMNIST/raw/{name}.gz": ZIP(data) for name, data in IDX.items()}),
    "torchvision-idx": ("tiny-mnist", {f"TinyMNIST/raw/{name}": data for name, data in IDX.items()}),
    "ours-xz": ("tiny-cifar", {f"tiny-cifar/{name}.xz": lzma.compress(data) for name, data in BATCHES.items()}),
    "ours-batches": ("tiny-cifar", {f"tiny-cifar/{name}": data for name, data in BATCHES.items()}),
    "torchvision-batches": ("tiny-cifar", {f"tiny-batches-py/{name}": data for name, data in BATCHES.items()}),
    "ours-archive": ("tiny-cifar", {"tiny-cifar/tiny-python.tar.gz": ARCHIVE}),
    "torchvision-archive": ("tiny-cifar", {"tiny-python.tar.gz": ARCHIVE}),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """No test reads or writes the user's own data sets, and the small ones are known."""
    monkeypatch.delenv("DIRECTLOSS_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "*")
    for name, source in TINY.items():
        monkeypatch.setitem(SOURCES, name, source)
    return tmp_path / "home"


@pytest.fixture
def put(tmp_path):
    """Write the files of a layout into a folder; return the name of the data set and the folder."""

    def write(layout):
        name, files = LAYOUTS[layout]
        for path, data in files.items():
            (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / path).write_bytes(data)
        return name, tmp_path / "data"

    return write


def check(images, name):
    for field in FIELDS:
        array = getattr(images, field)
        assert array.dtype == (np.int64 if "labels" in field else np.uint8)
        np.testing.assert_array_equal(array, EXPECTED[name][field])
    assert (images.name, images.classes) == (name, TINY[name].classes)


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


# Mean and standard deviation of the training pixels in each channel, as known from many training recipes.
STATISTICS = {
    "mnist": [(0.1307, 0.3081)],
    "fashion-mnist": [(0.2860, 0.3530)],
    "cifar-10": [(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)],
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.filterwarnings("error")
def test_the_published_files_have_the_checksums_of_the_table_and_give_the_known_images(name, tmp_path, monkeypatch):
    if not (REAL / name).is_dir():
        pytest.skip("the published files are not here")
    source, unpack, unpacked = SOURCES[name], formats.unpack, []

    def record(*file):
        data = unpack(*file)
        unpacked.append(sha256(data))
        return data

    monkeypatch.setattr(formats, "unpack", record)
    (tmp_path / name).symlink_to(REAL / name)
    images = load(name, tmp_path, download=False)
    assert unpacked == [checksums[""] for checksums in source.files.values()]

    (tmp_path / name).unlink()
    again = load(name, tmp_path, download=False)
    assert images.train_images.shape == (source.train, *source.shape)
    assert images.test_images.shape == (source.test, *source.shape)
    for field in FIELDS:
        assert isinstance(getattr(again, field), np.memmap)
        np.testing.assert_array_equal(getattr(images, field)[::50], getattr(again, field)[::50])
    counts = np.bincount(images.train_labels), np.bincount(images.test_labels)
    if name == "mnist":
        assert [(count.min(), count.max()) for count in counts] == [(5421, 6742), (892, 1135)]
    else:
        assert [set(count) for count in counts] == [{source.train // 10}, {1000}]
    levels = np.arange(256) / 255
    for channel, (mean, deviation) in enumerate(STATISTICS[name]):
        parts = (images.train_images[start : start + 5000, channel] for start in range(0, source.train, 5000))
        share = sum(np.bincount(part.ravel(), minlength=256) for part in parts) / images.train_images[:, 0].size
        assert share @ levels == pytest.approx(mean, abs=6e-5)
        assert np.sqrt(share @ (levels - mean) ** 2) == pytest.approx(deviation, abs=6e-5)


def test_digits_are_the_bundled_ones_and_every_fifth_of_a_class_is_for_testing(tmp_path):
    images = load("digits", tmp_path / "nowhere")
    bunch = load_digits()
    for digit in range(10):
        own = bunch.images[bunch.target == digit]
        train = images.train_images[images.train_labels == digit]
        test = images.test_images[images.test_labels == digit]
        np.testing.assert_array_equal(np.round(test[:, 0] / 255 * 16), own[4::5])
        np.testing.assert_array_equal(np.round(train[:, 0] / 255 * 16), np.delete(own, np.s_[4::5], axis=0))
    assert (len(images.train_images), len(images.test_images)) == (SOURCES["digits"].train, SOURCES["digits"].test)
    assert (images.train_images.dtype, images.train_labels.dtype) == (np.uint8, np.int64)
    assert images.train_images.max() == 255
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", SOURCES)
def test_the_table_is_complete(name):
    source = SOURCES[name]
    assert len(source.classes) == (10 if source.shape else 0)
    sums = [sum_ for forms in {**source.files, **source.archive}.values() for sum_ in forms.values()]
    assert all(len(bytes.fromhex(sum_)) == 32 for sum_ in sums)
    assert len(set(sums)) == len(sums)
    assert all(mirror.endswith("/") for mirror in source.mirrors)


@every_layout
def test_every_layout_gives_the_same_arrays(layout, put):
    name, folder = put(layout)
    check(load(name, folder, download=False), name)


def test_files_of_several_layouts_are_one_data_set(put):
    """As after a download that was stopped: some packed here, some unpacked there."""
    name, folder = put("ours-xz")
    put("torchvision-batches")
    (folder / "tiny-cifar/data_batch_1.xz").unlink()
    (folder / "tiny-batches-py/test_batch").unlink()
    check(load(name, folder, download=False), name)


def test_the_archive_stands_in_where_batches_are_missing(put):
    name, folder = put("ours-archive")
    put("torchvision-batches")
    (folder / "tiny-batches-py/test_batch").unlink()
    check(load(name, folder, download=False), name)


@every_layout
@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_file_that_is_not_as_published_is_refused_by_name_with_both_checksums(layout, damage, put):
    name, folder = put(layout)
    path = folder / list(LAYOUTS[layout][1])[-1]
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-9], "flip": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "empty": b""}[damage])
    with pytest.raises(UserError, match="delete it and run directloss data fetch") as caught:
        load(name, folder)
    for part in (str(path), sha256(data), sha256(path.read_bytes())):
        assert part in str(caught.value)
    assert not (folder / "decoded").exists()


def test_a_member_of_an_archive_is_checked_by_itself(put, monkeypatch):
    name, folder = put("ours-archive")
    other = tar({**BATCHES, "test_batch": batch(PIXELS["test"] ^ 1, LABELS["test"])})
    (folder / "tiny-cifar/tiny-python.tar.gz").write_bytes(other)
    monkeypatch.setitem(TINY["tiny-cifar"].archive["tiny-python.tar.gz"], "", sha256(other))
    with pytest.raises(UserError, match="test_batch is altered"):
        load(name, folder)


def test_a_file_that_cannot_be_read_is_one_line(put, monkeypatch):
    name, folder = put("ours-gz")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hashlib, "file_digest", refuse)
    with pytest.raises(UserError, match=r"cannot read .*ubyte\.gz: Permission denied"):
        load(name, folder)


@pytest.mark.parametrize("shape", [(0,), (5,), (2, 3, 4), (0, 28, 28), (1, 1, 1)])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_round_trip(shape, packed):
    array = RANDOM.integers(0, 256, shape).astype(np.uint8)
    data = gzip.compress(idx(array)) if packed else idx(array)
    np.testing.assert_array_equal(read_idx(data, "file"), array)


HUGE = b"\0\0\x08\x03" + b"\xff" * 12
BAD_IDX = {
    "empty": (b"", "starts with nothing"),
    "magic": (b"\x01\0\x08\x01\0\0\0\0", "starts with 01000801"),
    "float": (b"\0\0\x0d\x01\0\0\0\0", "starts with 00000d01"),
    "no axes": (b"\0\0\x08\x00\x07", "starts with 00000800"),
    "many axes": (b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"\7", "starts with 000008ff"),
    "half a header": (b"\0\0\x08\x03\0\0\0\2\0\0", "has 10 bytes"),
    "too short": (idx(np.zeros(5, np.uint8))[:-1], r"has 12 bytes, but its header \(5,\) asks for 13"),
    "too long": (idx(np.zeros(5, np.uint8)) + b"\0", "has 14 bytes"),
    "huge": (HUGE, "has 16 bytes"),
    "cut gzip": (gzip.compress(b"\0" * 99)[:-9], "cannot be unpacked"),
    "broken gzip": (b"\x1f\x8b\x08garbage garbage", "cannot be unpacked"),
    "broken xz": (b"\xfd7zXZ\0garbage", "cannot be unpacked"),
}


@pytest.mark.parametrize("case", BAD_IDX)
def test_a_bad_idx_file_is_named_and_explained(case):
    data, reason = BAD_IDX[case]
    with pytest.raises(UserError, match=f"^the-file .*{reason}"):
        read_idx(data, "the-file")


def test_a_header_cannot_make_the_reader_allocate():
    tracemalloc.start()
    with pytest.raises(UserError):
        read_idx(HUGE, "file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6


@pytest.mark.parametrize("reader", [read_idx, read_batch])
@given(data=st.binary(max_size=64), start=st.sampled_from([b"", b"\0\0\x08", b"\x1f\x8b", b"\xfd7zXZ\0", b"\x80\x03"]))
def test_any_bytes_are_read_or_refused(reader, data, start):
    with suppress(UserError):
        reader(start + data, "file")


class Call:
    """Pickles as a call of ``function``."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def malicious(trace):
    return pickle.dumps({b"data": Call(os.system, f"touch {trace}"), b"labels": [0]}, protocol=3)


def test_a_malicious_pickle_is_refused_for_its_checksum_and_then_by_the_reader(put, tmp_path, monkeypatch):
    name, folder = put("ours-batches")
    trace, path = tmp_path / "trace", folder / "tiny-cifar/data_batch_2"
    path.write_bytes(malicious(trace))
    with pytest.raises(UserError, match="data_batch_2 is altered"):
        load(name, folder)
    with pytest.raises(UserError, match=r"refused to load posix\.system"):
        read_batch(path.read_bytes(), "data_batch_2")
    with pytest.raises(UserError, match=r"refused to load posix\.system"):
        read_batch(lzma.compress(path.read_bytes()), "data_batch_2.xz")
    monkeypatch.setitem(TINY[name].files["data_batch_2"], "", sha256(path.read_bytes()))
    with pytest.raises(UserError, match=r"refused to load posix\.system"):
        load(name, folder)
    assert not trace.exists()


def test_a_malicious_pickle_in_an_archive_is_refused(put, tmp_path, monkeypatch):
    name, folder = put("ours-archive")
    evil = {**BATCHES, "test_batch": malicious(tmp_path / "trace")}
    (folder / "tiny-cifar/tiny-python.tar.gz").write_bytes(tar(evil))
    with pytest.raises(UserError, match=r"tiny-python\.tar\.gz is altered"):
        load(name, folder)
    monkeypatch.setitem(TINY[name].archive["tiny-python.tar.gz"], "", sha256(tar(evil)))
    monkeypatch.setitem(TINY[name].files["test_batch"], "", sha256(evil["test_batch"]))
    (folder / "tiny-cifar/tiny-python.tar.gz").write_bytes(tar(evil))
    with pytest.raises(UserError, match=r"refused to load posix\.system"):
        load(name, folder)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("function", [eval, getattr, print, np.load, np.zeros, os.getcwd])
def test_a_pickle_may_only_rebuild_arrays(function):
    with pytest.raises(UserError, match="file is no CIFAR batch: UnpicklingError: refused to load"):
        read_batch(pickle.dumps(Call(function, "1"), protocol=2), "file")


BAD_BATCHES = {
    "no dictionary": pickle.dumps([1, 2], protocol=2),
    "no labels": pickle.dumps({b"data": 1}, protocol=3),
    "no array": pickle.dumps({b"data": [1], b"labels": [1]}, protocol=3),
    "float pixels": batch(np.zeros((1, 3072)), [1]),
    "too few labels": batch(np.zeros((2, 3072), np.uint8), [1]),
    "too few pixels": batch(np.zeros((2, 3071), np.uint8), [1, 2]),
    "words as labels": batch(np.zeros((1, 3072), np.uint8), ["cat"]),
    "cut short": BATCHES["test_batch"][:-100],
    "huge array": pickle.dumps({b"data": Call(np.ndarray, (2**50,)), b"labels": [1]}, protocol=3),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_is_named_and_explained(case):
    with pytest.raises(UserError, match=r"^the-file is no CIFAR batch: \w+: ."):
        read_batch(BAD_BATCHES[case], "the-file")


@pytest.mark.parametrize("layout", ["ours-gz", "ours-archive"])
def test_the_second_load_maps_what_the_first_decoded_and_needs_no_published_file(layout, put):
    name, folder = put(layout)
    load(name, folder)
    assert all(TINY[name].key in str(path) for path in files_in(folder / "decoded"))
    for path in LAYOUTS[layout][1]:
        (folder / path).unlink()
    images = load(name, folder, download=False)
    check(images, name)
    assert all(isinstance(getattr(images, field), np.memmap) for field in FIELDS)
    with pytest.raises(ValueError, match="read-only"):
        images.train_images[0] = 0


def test_decoded_arrays_belong_to_the_checksums(put, monkeypatch):
    """Other published files, other arrays: nothing that was decoded before is taken for them."""
    name, folder = put("ours-idx")
    load(name, folder)
    file = "t10k-labels-idx1-ubyte"
    labels = (EXPECTED[name]["test_labels"] + 1).astype(np.uint8)
    (folder / "tiny-mnist" / file).write_bytes(idx(labels))
    monkeypatch.setitem(TINY[name].files[file], "", sha256(idx(labels)))
    np.testing.assert_array_equal(load(name, folder).test_labels, labels)


def npy(array):
    np.save(buffer := io.BytesIO(), array)
    return buffer.getvalue()


DAMAGE = {
    "cut": lambda data: data[:-1],
    "cut to the header": lambda data: data[:128],
    "empty": lambda data: b"",
    "long": lambda data: data + b"\0",
    "garbage": lambda data: b"x" * len(data),
    "header": lambda data: data.replace(b"descr", b"({[(}"),
    "other size": lambda data: data.replace(b"(7,", b"(9,").replace(b"(3,", b"(2,"),
    "other shape": lambda data: npy(np.load(io.BytesIO(data)).reshape(1, -1)),
    "other type": lambda data: npy(np.load(io.BytesIO(data)).view(np.int8 if data.count(b"|u1") else np.uint64)),
    "zeros": lambda data: data[:128] + bytes(len(data) - 128),
    "one bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "a zip file": lambda data: b"PK\x03\x04" + data,
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_decoded_array_is_decoded_again(damage, field, put):
    name, folder = put("ours-gz")
    load(name, folder)
    (path,) = (folder / "decoded").rglob(f"{field}.npy")
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[damage](whole))
    check(load(name, folder), name)
    assert path.read_bytes() == whole
    assert len(files_in(folder / "decoded")) == 5


def test_a_read_only_folder_is_left_alone(put, home):
    name, folder = put("ours-gz")
    folder.chmod(0o555)
    check(load(name, folder), name)
    check(load(name, folder), name)
    assert not (folder / "decoded").exists()
    assert len(files_in(home / ".cache/directloss/decoded")) == 5


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(put, monkeypatch):
    name, folder = put("ours-gz")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match=r"cannot write .*train_images\.npy: No space left on device"):
        load(name, folder)
    assert files_in(folder / "decoded") == []


def test_two_processes_can_decode_at_once(put, monkeypatch):
    name, folder = put("ours-xz")
    context = multiprocessing.get_context("fork")
    barrier, save = context.Barrier(2, timeout=60), np.save
    monkeypatch.setattr(np, "save", lambda file, array: (barrier.wait(), save(file, array), barrier.wait()))
    processes = [context.Process(target=lambda: check(load(name, folder), name)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(files_in(folder / "decoded")) == 5
    check(load(name, folder), name)


def test_the_folder_is_the_argument_then_the_environments_then_the_home_cache(monkeypatch, home, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert data_folder() == home / ".cache/directloss"
    monkeypatch.setenv("DIRECTLOSS_DATA_DIR", "")
    assert data_folder() == home / ".cache/directloss"
    monkeypatch.setenv("DIRECTLOSS_DATA_DIR", "~/sets")
    assert data_folder() == home / "sets"
    assert data_folder(tmp_path) == data_folder(str(tmp_path)) == tmp_path
    monkeypatch.setenv("DIRECTLOSS_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(UserError, match=f"not found in {tmp_path / 'data'}, and download is off"):
        load("mnist", download=False)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A server for the small sets; returns its folder and the paths it was asked for."""
    served, asked = tmp_path / "mirror", []
    served.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(served))

        def log_message(self, *_):
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for layout in ("ours-gz", "ours-archive"):
        name, files = LAYOUTS[layout]
        for path, data in files.items():
            (served / Path(path).name).write_bytes(data)
        mirror_at(monkeypatch, name, server.server_port)
    yield served, asked
    server.shutdown()
    server.server_close()
    thread.join()


def mirror_at(monkeypatch, name, *ports):
    source = SOURCES[name]
    mirrors = tuple(f"http://127.0.0.1:{port}/" for port in ports)
    monkeypatch.setitem(SOURCES, name, Source(**{**vars(source), "mirrors": mirrors}))


@pytest.mark.parametrize("layout", ["ours-gz", "ours-archive"])
def test_what_is_missing_is_downloaded_to_our_layout(layout, mirror, tmp_path):
    name, files = LAYOUTS[layout]
    folder = tmp_path / "new" / "folder"
    check(load(name, folder), name)
    assert {path: (folder / path).read_bytes() for path in files} == files
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in files_in(folder))
    assert len(files_in(folder)) == len(files) + 5


def test_only_what_is_missing_is_downloaded(mirror, put):
    name, folder = put("torchvision-idx")
    (folder / "TinyMNIST/raw/t10k-labels-idx1-ubyte").unlink()
    check(load(name, folder), name)
    assert len(mirror[1]) == 1
    load(name, folder)
    assert len(mirror[1]) == 1


def test_the_next_mirror_is_asked_where_the_first_fails(mirror, tmp_path, monkeypatch):
    (port,) = {url.split(":")[-1].rstrip("/") for url in SOURCES["tiny-mnist"].mirrors}
    mirror_at(monkeypatch, "tiny-mnist", 9, port)
    check(load("tiny-mnist", tmp_path / "data"), "tiny-mnist")


def test_a_corrupt_download_is_refused_with_both_checksums_and_not_kept(mirror, tmp_path):
    file = "t10k-labels-idx1-ubyte.gz"
    (mirror[0] / file).write_bytes(b"something else")
    with pytest.raises(UserError, match="the download failed because of http") as caught:
        load("tiny-mnist", tmp_path / "data")
    for part in (file, sha256(b"something else"), SOURCES["tiny-mnist"].files[file[:-3]][".gz"]):
        assert part in str(caught.value)
    assert len(files_in(tmp_path / "data")) == 3


def test_a_file_that_the_mirror_lacks_is_named(mirror, tmp_path):
    (mirror[0] / "tiny-python.tar.gz").unlink()
    with pytest.raises(UserError, match=r"tiny-python\.tar\.gz: 404"):
        load("tiny-cifar", tmp_path)


def test_a_terminal_shows_progress_and_nothing_else_does(mirror, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pooch.get_logger().handlers[0], "stream", log := io.StringIO())
    load("tiny-cifar", tmp_path / "quiet")
    assert capsys.readouterr() == ("", "")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    load("tiny-cifar", tmp_path / "loud")
    assert "tiny-python.tar.gz" in terminal.getvalue()
    assert not log.getvalue()
    assert capsys.readouterr().out == ""


def test_without_a_network_the_command_says_where_it_looked_why_it_failed_and_what_to_do(tmp_path, monkeypatch, capsys):
    mirror_at(monkeypatch, "tiny-mnist", 9)
    with pytest.raises(SystemExit) as caught:
        main(["data", "fetch", "tiny-mnist", "--data-dir", str(tmp_path / "data")])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"the data set tiny-mnist was not found in {tmp_path / 'data'}, and the download failed because of" in error
    for part in ("127.0.0.1", "refused", "DIRECTLOSS_DATA_DIR or --data-dir", "put its files there"):
        assert part in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path, monkeypatch, capsys):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(SystemExit):
        main(["data", "list", "--data-dir", str(tmp_path)])
    assert f"cannot look into {tmp_path}: Permission denied" in capsys.readouterr().err


def run(capsys, *arguments):
    main(["data", *map(str, arguments)])
    printed = capsys.readouterr()
    assert not printed.err
    return printed.out


def fail(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(["data", *map(str, arguments)])
    assert caught.value.code == 2
    return capsys.readouterr()


def test_fetch_makes_sets_ready(mirror, tmp_path, capsys):
    printed = run(capsys, "fetch", "tiny-mnist", "tiny-cifar", "digits", "tiny-mnist", "--data-dir", tmp_path)
    assert printed.splitlines() == [
        "tiny-mnist: 7 train and 3 test images are ready",
        "tiny-cifar: 4 train and 3 test images are ready",
        "digits: 1442 train and 355 test images are ready",
    ]
    check(load("tiny-cifar", tmp_path, download=False), "tiny-cifar")


def test_fetch_all_is_every_set(capsys, monkeypatch):
    monkeypatch.setattr(command, "load", lambda *_: load("digits"))
    for source in SOURCES.values():
        if not source.shape:
            monkeypatch.setattr(command.tables, source.reader, lambda *_: None)
    assert [line.split(":")[0] for line in run(capsys, "fetch", "all").splitlines()] == list(SOURCES)


@pytest.mark.parametrize("verb", ["fetch", "verify"])
def test_an_unknown_set_is_one_line_with_the_known_ones(verb, capsys):
    failed = fail(capsys, verb, "digits", "nist")
    assert "there is no data set 'nist'; choose from mnist, fashion-mnist, cifar-10, digits" in failed.err
    assert not failed.out
    with pytest.raises(UserError, match="there is no data set 'nist'"):
        load("nist")


def test_fetch_without_a_name_asks_for_one(capsys):
    assert "name a data set to fetch: all, or some of mnist" in fail(capsys, "fetch").err


def test_list_shows_what_is_there(put, capsys):
    name, folder = put("ours-gz")
    put("torchvision-batches")
    (folder / "tiny-batches-py/test_batch").unlink()
    load(name, folder)
    printed = run(capsys, "list", "--data-dir", folder)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    lines = {name: rest for name, *rest in cells}
    assert str(folder) in printed
    assert lines["mnist"] == ["60000", "10000", "1x28x28", "10", "-", "-"]
    assert lines["digits"] == ["1442", "355", "1x8x8", "10", "bundled", "not needed"]
    assert lines["tiny-cifar"][4:] == ["tiny-batches-py (incomplete)", "-"]
    assert lines["tiny-mnist"][4:] == ["tiny-mnist", str(folder / "decoded")]


def test_verify_has_a_line_for_each_file_and_fails_when_one_is_altered(put, capsys):
    name, folder = put("ours-gz")
    put("torchvision-idx")
    put("torchvision-archive")
    printed = run(capsys, "verify", "--data-dir", folder)
    own = [line for line in printed.splitlines() if "iny" in line]
    assert len(own) == 9
    assert all(line.startswith("OK ") for line in own)
    assert f"missing  {folder / 'mnist/train-images-idx3-ubyte'}" in printed
    altered = folder / "TinyMNIST/raw/train-images-idx3-ubyte"
    altered.write_bytes(altered.read_bytes()[:-1])
    failed = fail(capsys, "verify", name, "--data-dir", folder)
    assert failed.out.count("OK ") == 7
    assert f"altered  {altered}: SHA-256 {sha256(altered.read_bytes())}, expected " in failed.out
    assert f"1 of the files in {folder} are altered" in failed.err


def test_verify_finds_decoded_labels_that_are_not_those_of_the_files(put, capsys):
    name, folder = put("ours-gz")
    load(name, folder)
    assert run(capsys, "verify", name, "--data-dir", folder).count("OK ") == 8
    (path,) = (folder / "decoded").rglob("train_labels.npy")
    path.write_bytes(DAMAGE["zeros"](path.read_bytes()))
    failed = fail(capsys, "verify", name, "--data-dir", folder)
    assert f"altered  {path}: SHA-256 {sha256(path.read_bytes())}, expected " in failed.out
    assert "1 of the files" in failed.err


def test_the_command_line_starts_without_heavy_modules():
    heavy = "{'torch', 'numpy', 'sklearn', 'pooch', 'directloss.data'}"
    code = f"import sys, directloss.cli; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
