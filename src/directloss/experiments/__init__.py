"""The experiments, a declaration each; imported when they are needed."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from directloss.lab.experiment import Experiment

# By their commands: the module, and what the list of commands says.
DECLARED = {
    "sort": ("sorting", "Learn to sort by matching: tables 1 and 2 of the paper."),
    "knn": ("neighbors", "Learn an embedding whose k nearest neighbours carry the right label: tables 3 and 4."),
    "dynamics": ("dynamics", "Trace how sorting is learned with both signs of epsilon: figure 3 of the paper."),
    "decide": ("decisions", "Predict, then optimise: compare losses by the regret of the decisions they lead to."),
    "audit": ("audit", "Compare a loss's gradients with exact ones: bias, variance, direction and cost."),
    "truth": ("truth", "Put every rule beside the exact gradient on four structures: the table of truth."),
    "distribution": ("distribution", "Show how the noise's scale spreads the predictions, beside Gibbs: figure 1."),
}
COMMANDS = (*DECLARED, "report", "results", "data")


def declared(command: str) -> "Experiment":
    """The declaration behind a command."""
    found: Experiment = import_module(f"directloss.experiments.{DECLARED[command][0]}").EXPERIMENT
    return found


def all_declared() -> list["Experiment"]:
    return [declared(command) for command in DECLARED]
