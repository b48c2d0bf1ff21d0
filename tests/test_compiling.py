"""Kernels compile, or say in one line what is in their way."""

import os
import subprocess
import sys

import pytest

KERNEL = """
from directloss.compiling import kernel, part

@part()
def one():
    return 1

@kernel
def successor(x):
    return x + one()
"""

DAMAGE = """
from pathlib import Path
import sys
import directloss.compiling
from plus_one import successor

def again():
    return directloss.compiling.kernel(successor.__wrapped__)

folder = Path(sys.argv[1])
assert successor(1) == 2
for suffix in ("nbi", "nbc"):
    for damage in (lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"garbage" * 100):
        files = list(folder.rglob(f"*.{suffix}"))
        assert len(files) == 1, files
        whole = files[0].read_bytes()
        files[0].write_bytes(damage(whole))
        assert again()(1) == 2
        assert len(files[0].read_bytes()) > len(whole) // 2, "not repaired"
        assert again()(1) == 2
print("repaired")
"""


def run(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture
def damaged(tmp_path):
    """A program that damages the cache of a small kernel in every way and calls it after each."""
    (tmp_path / "plus_one.py").write_text(KERNEL)
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    return lambda code: run(code, tmp_path / "cache", NUMBA_CACHE_DIR=str(tmp_path / "cache"), PYTHONPATH=paths)


def test_a_damaged_cache_is_compiled_again_in_silence(damaged):
    done = damaged(DAMAGE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "repaired\n", ""), done.stderr


def test_a_damaged_cache_that_cannot_be_removed_is_named(damaged):
    locked = """
from pathlib import Path
def refuse(*arguments, **options):
    raise PermissionError("read-only")
Path.unlink = refuse
"""
    done = damaged(locked + DAMAGE)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert "numba's cache of directloss is damaged; delete the folder" in line
    assert "cache" in line.rsplit("folder", 1)[1]


def test_without_a_compiler_one_line_says_what_to_unset():
    done = run("import torch, directloss as dl; dl.Matching().solve(torch.rand(3, 3))", NUMBA_DISABLE_JIT="1")
    assert done.returncode == 1
    assert "NUMBA_DISABLE_JIT is set" in done.stderr.splitlines()[-1]
    assert "unset it" in done.stderr.splitlines()[-1]
