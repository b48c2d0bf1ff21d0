"""Sets of 0/1 tensors with fast exact maximisers. They know nothing about learning."""

from directloss.structures.base import Structure
from directloss.structures.choice import Choice
from directloss.structures.custom import custom
from directloss.structures.matching import Matching
from directloss.structures.subset import Subset

__all__ = ["Choice", "Matching", "Structure", "Subset", "custom"]
