"""The rules by their names: what ``directloss audit --loss`` takes, and the settings that the table of truth shows.

A new rule is one line here. It must be a public name, or a function of this file, that follows the conventions of
losses (``loss(scores, cost or target, structure, ...)``) or layers (``layer(scores, structure, ...)``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

FOUR = ("choice", "subset", "matching", "chain")  # structures of the table of truth


@dataclass(frozen=True)
class Rule:
    """A rule's settings in the table of truth, and which of its structures it takes."""

    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fits: Sequence[str] = FOUR


RULES = {
    "direct_loss": Rule({"epsilon": (-0.5, -2.0), "sides": ("one", "both")}),
    "perturbed": Rule({"samples": (2, 10)}),
    "blackbox": Rule({"step": (2.0,)}),
    "imle": Rule({"step": (2.0,), "sides": ("one", "both")}),
    "identity": Rule({"projection": ("none", "norm", "both")}),
    "sparsemap": Rule(),
    "sinkhorn": Rule({"temperature": (0.5, 1.0)}, ("matching",)),
    "relaxed_subset": Rule({"temperature": (0.5, 1.0)}, ("subset",)),
    "neuralsort_subset": Rule({"temperature": (0.5, 1.0)}, ("subset",)),
}


def load_rule(name: str) -> Callable[..., Any]:
    """The function behind a name of the table."""
    import directloss

    found: Callable[..., Any] = globals().get(name) or getattr(directloss, name)
    return found


def neuralsort_subset(scores: "Tensor", structure: Any, temperature: float = 1.0) -> "Tensor":
    """The first k rows of NeuralSort's permutation, added up: a relaxed subset."""
    from directloss.layers.neuralsort import neuralsort

    return neuralsort(scores, temperature, k=structure.k).sum(-2)


def parse_settings(text: str) -> dict[str, list[Any]]:
    """ "temperature=.5,1; projection=mean" as a grid; numbers where they are some."""
    from directloss.errors import UserError

    found: dict[str, list[Any]] = {}
    for axis in filter(None, (axis.strip() for axis in text.split(";"))):
        name, equals, values = axis.partition("=")
        parts = [part.strip() for part in values.split(",") if part.strip()]
        if not equals or not parts or not name.strip().isidentifier():
            raise UserError(f"--settings has {axis!r}; expected name=value,value;name=value, e.g. temperature=.5,1")
        found[name.strip()] = [_value(part) for part in parts]
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
