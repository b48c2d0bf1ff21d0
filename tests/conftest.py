"""One core for each test process: xdist already fills the machine, and results must not depend on the thread count."""

import os
from pathlib import Path

import pytest
import torch

import directloss as dl

torch.set_num_threads(1)

# The published image files, where a machine has them beside the repository.
if (shared := Path(__file__).parents[2] / "shared" / "data").is_dir():
    os.environ.setdefault("DIRECTLOSS_DATA_DIR", str(shared))


@pytest.fixture(autouse=True)
def _default_threads():
    yield
    dl.set_num_threads(None)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
