"""The functions behind the commands, made from the declarations when the command line asks for one."""

from collections.abc import Callable

from directloss.cli import COMMANDS
from directloss.experiments import MODULES, declared
from directloss.lab.run import as_command


def __getattr__(name: str) -> Callable[..., None]:
    if name not in MODULES:
        raise AttributeError(name)
    return as_command(declared(name), COMMANDS)
