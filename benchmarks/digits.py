"""`DirectNeighborsClassifier` against scikit-learn's learned and plain neighbours on its digits, 5-fold.

    python benchmarks/digits.py [--seeds 10] [--threads 2] [--markdown FILE]

Every seed shuffles the folds anew; all classifiers see the same folds and have their defaults, 5 neighbours. Accuracy
is the mean over folds and seeds, *ahead* the mean difference to ours with the standard error over the seeds, and the
seconds are those of all five folds, fit and score, in one process, in turns.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

import directloss as dl
from directloss.lab.provenance import code_version, machine
from directloss.lab.table import markdown


def classifiers(seed: int) -> dict[str, ClassifierMixin]:
    return {
        "DirectNeighborsClassifier": dl.DirectNeighborsClassifier(5, random_state=seed),
        "NCA + kNN": make_pipeline(NeighborhoodComponentsAnalysis(random_state=seed), KNeighborsClassifier(5)),
        "kNN": KNeighborsClassifier(5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    facts = f"commit {code_version()}, {machine()}, {options.threads} threads, seeds 0 to {options.seeds - 1}"
    print(facts)
    samples, labels = load_digits(return_X_y=True)
    accuracy: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    with threadpool_limits(options.threads):
        for seed in range(options.seeds):
            folds = StratifiedKFold(5, shuffle=True, random_state=seed)
            for name, classifier in classifiers(seed).items():
                start = time.perf_counter()
                scores = cross_val_score(classifier, samples, labels, cv=folds, error_score="raise")
                seconds.setdefault(name, []).append(time.perf_counter() - start)
                accuracy.setdefault(name, []).append(100 * scores.mean())
            print(seed, {name: f"{values[-1]:.2f}" for name, values in accuracy.items()}, flush=True)
    ours = np.array(accuracy["DirectNeighborsClassifier"])
    lines = []
    for name, values in accuracy.items():
        ahead = np.array(values) - ours
        error = ahead.std(ddof=1) / len(ahead) ** 0.5 if len(ahead) > 1 else float("nan")
        lines.append(
            [
                name,
                f"{np.mean(values):.2f}",
                "-" if name == "DirectNeighborsClassifier" else f"{ahead.mean():+.2f} ± {error:.2f}",
                f"{np.median(seconds[name]):.1f}",
            ]
        )
    text = markdown(["classifier", "accuracy, %", "ahead of ours", "seconds"], lines)
    print(text)
    if options.markdown:
        options.markdown.write_text(f"{facts}\n\n{text}")


if __name__ == "__main__":
    main()
