"""What the command line reports in one line, and what is not installed."""

import importlib.util


def need(module: str, what: str, extra: str) -> None:
    """Raise ImportError, in one line, if a module of an extra is not installed."""
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{what} needs {module}: pip install 'directloss[{extra}]'")


class UserError(Exception):
    """Something only the user can put right. The command line prints it and exits with code 2."""
