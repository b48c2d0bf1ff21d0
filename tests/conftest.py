"""One core for each test process: xdist already fills the machine, and results must not depend on the thread count."""

import gc
import os
from pathlib import Path

import pytest
import torch

import directloss as dl

torch.set_num_threads(1)

# The published image files, where a machine has them beside the repository.
if (shared := Path(__file__).parents[2] / "shared" / "data").is_dir():
    os.environ.setdefault("DIRECTLOSS_DATA_DIR", str(shared))


collect_ignore = ["loaded.py"]  # importing it trains

# Files that the quick tier leaves out: they train, draw thousands of samples, or start processes.
SLOW = {"test_attacks", "test_audit", "test_cli", "test_distribution", "test_docs", "test_exact", "test_image_nets"}
SLOW |= {"test_knn", "test_lab", "test_matching_fuzz", "test_neighbors", "test_report", "test_suggest", "test_theory"}
SLOW |= {"test_torture", "test_truth_estimators", "test_truth_losses", "test_workers", "test_interrupt", "test_data"}
SLOW |= {"test_compare", "test_decide", "test_examples", "test_truth", "test_compiling", "test_loss_calls"}
SLOW |= {"test_tables"}


def pytest_ignore_collect(collection_path, config):
    """Importing what is not run, and counting its thousands of tests, takes half of the quick tier's time."""
    return True if config.option.markexpr == "not slow" and collection_path.stem in SLOW else None


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Thousands of tests are thousands of objects: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _default_threads():
    yield
    dl.set_num_threads(None)


@pytest.fixture(scope="module")
def fewer_points():
    """Audits whose exact values have errors still far below those of few estimates; both are in what is stated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("directloss.judging.audit._LEAST_POINTS", 1 << 12)
        yield


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
