"""Data sets: found or downloaded, checked, never unpickled.

``load("mnist")`` gives an `ImageSet`, decoded once, then memory-mapped; ``load_energy()``, ``load_ranking()``,
``load_letters()`` and ``load_treebank()`` give what other structures need; ``shortest_path`` and ``knapsack`` draw
costs as the papers on predict-then-optimise do. `SOURCES` is the table of what there is to load.
"""

from directloss.data.images import ImageSet, data_folder, load
from directloss.data.registry import SOURCES, Source
from directloss.data.synthetic import knapsack, shortest_path
from directloss.data.tables import (
    EnergyPrices,
    Letters,
    Queries,
    Sentence,
    load_energy,
    load_letters,
    load_ranking,
    load_treebank,
)

__all__ = [
    "ImageSet",
    "load",
    "EnergyPrices",
    "load_energy",
    "Queries",
    "load_ranking",
    "Letters",
    "load_letters",
    "Sentence",
    "load_treebank",
    "shortest_path",
    "knapsack",
    "data_folder",
    "SOURCES",
    "Source",
]
