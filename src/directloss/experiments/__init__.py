"""The experiments, a declaration each; imported when they are needed."""

from importlib import import_module

from directloss.lab.experiment import Experiment

# By their commands.
MODULES = {
    "sort": "sorting",
    "knn": "neighbors",
    "dynamics": "dynamics",
    "audit": "audit",
    "distribution": "distribution",
}


def declared(command: str) -> Experiment:
    """The declaration behind a command."""
    found: Experiment = import_module(f"directloss.experiments.{MODULES[command]}").EXPERIMENT
    return found


def all_declared() -> list[Experiment]:
    return [declared(command) for command in MODULES]
