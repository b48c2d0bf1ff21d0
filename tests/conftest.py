"""One core for each test process: xdist already fills the machine, and results must not depend on the thread count."""

import pytest
import torch

import directloss as dl

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _default_threads():
    yield
    dl.set_num_threads(None)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
