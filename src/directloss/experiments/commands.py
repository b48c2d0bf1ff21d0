"""The functions behind the commands, made from the declarations when the command line asks for one."""

from collections.abc import Callable

from directloss.experiments import COMMANDS, DECLARED, declared
from directloss.lab.run import as_command


def __getattr__(name: str) -> Callable[..., None]:
    if name not in DECLARED:
        raise AttributeError(name)
    return as_command(declared(name), COMMANDS)
