"""The rules by their names: what ``directloss audit --loss`` takes, and the settings that the table of truth shows.

A new rule is one line here. It must be a public name, or a function of this file, that follows the conventions of
losses (``loss(scores, cost or target, structure, ...)``) or layers (``layer(scores, structure, ...)``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_WARM_UP, _INSTANCES = 50, 64  # calls, and instances of each, on which hands-free epsilons are found
FOUR = ("choice", "subset", "matching", "chain")  # structures of the table of truth


@dataclass(frozen=True)
class Rule:
    """A rule's settings in the table of truth, and which of its structures it takes."""

    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fits: Sequence[str] = FOUR


RULES = {
    "direct_loss": Rule({"epsilon": (-0.5, -2.0), "sides": ("one", "both")}),
    "handsfree": Rule(),
    "reinforce": Rule({"samples": (2, 10)}),
    "spo_plus": Rule(),
    "structured_hinge": Rule(),
    "fenchel_young": Rule({"samples": (1,)}),
    "likelihood": Rule(fits=("choice", "subset", "chain")),
    "contrastive": Rule({"form": ("map", "nce")}, ("choice", "subset", "matching")),
    "rank_pool": Rule({"form": ("pairwise", "listwise")}, ("choice", "subset", "matching")),
    "smooth_top_k": Rule(fits=("choice",)),
    "softmax": Rule({"temperature": (0.5, 1.0)}, ("choice", "subset", "chain")),
    "neural_neighbors": Rule({"temperature": (0.5, 1.0)}, ("subset",)),
    "ot_top_k": Rule(fits=("subset",)),
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


def handsfree(
    scores: Any,
    cost: "Tensor",
    structure: Any,
    scale: Any = 1.0,
    noise: Any = None,
    generator: Any = None,
    reduction: str = "mean",
) -> Any:
    """``DirectLoss(structure)`` with the epsilons that it finds on this instance, held from then on.

    The scale is given. What it would find follows the mistakes on many instances; one instance is right or wrong.
    """
    import torch

    from directloss.losses.criterion import DirectLoss
    from directloss.parts import as_parts

    criterion = DirectLoss(structure, scale=1.0, noise=noise, samples=2, reduction=reduction)  # type: ignore[arg-type]
    few = tuple(part[:_INSTANCES].detach().requires_grad_() for part in as_parts(scores))
    sigma = torch.as_tensor(scale).detach().mean()
    for _ in range(_WARM_UP):
        criterion(few if len(few) > 1 else few[0], cost, scale=sigma, generator=generator)
    return criterion.eval()(scores, cost, scale=scale, generator=generator)


def neuralsort_subset(scores: "Tensor", structure: Any, temperature: float = 1.0) -> "Tensor":
    """The first k rows of NeuralSort's permutation, added up: a relaxed subset."""
    from directloss.layers.checks import fitting
    from directloss.layers.neuralsort import neuralsort
    from directloss.structures.subset import Subset

    return neuralsort(scores, temperature, k=fitting("neuralsort_subset", structure, Subset).largest).sum(-2)


def neural_neighbors(scores: "Tensor", structure: Any, temperature: float = 1.0) -> "Tensor":
    """The k neighbours, added up: a relaxed subset."""
    from directloss.layers.neural_neighbors import neural_neighbors

    return neural_neighbors(scores, structure, temperature).sum(-2)


def contrastive(scores: "Tensor", target: "Tensor", structure: Any, form: str = "map", reduction: str = "mean") -> Any:
    """Against all structures as the pool."""
    from directloss.losses.contrastive import contrastive

    return contrastive(scores, target, _pool(scores, structure), form=form, reduction=reduction)  # type: ignore[arg-type]


def rank_pool(
    scores: "Tensor",
    cost: "Tensor",
    structure: Any,
    form: str = "listwise",
    temperature: float = 1.0,
    reduction: str = "mean",
) -> Any:
    """Of all structures as the pool."""
    from directloss.losses.rank_pool import rank_pool

    pool = _pool(scores, structure)
    return rank_pool(scores, cost, pool, form=form, temperature=temperature, reduction=reduction)  # type: ignore[arg-type]


def _pool(scores: "Tensor", structure: Any) -> Any:
    """Every structure of the first instance: an audit's instances are all the same."""
    from directloss.structures.finite import Finite

    if isinstance(scores, tuple):
        raise TypeError("a pool compares solutions for scores of one tensor, and these are in parts")
    one = scores.flatten(0, scores.dim() - structure.entry_dims - 1)[0]
    return Finite(structure.enumerate(one), entry_dims=structure.entry_dims)


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
