"""Image data sets: found or downloaded, checked, decoded once, then memory-mapped.

``load("mnist")`` gives an `ImageSet`; `SOURCES` is the table of what there is.
"""

from directloss.data.images import ImageSet, data_folder, load
from directloss.data.registry import SOURCES, Source

__all__ = ["ImageSet", "load", "data_folder", "SOURCES", "Source"]
