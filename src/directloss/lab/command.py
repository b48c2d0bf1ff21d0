"""From a function to a command: options may stand in a file, and what the user can put right is one line."""

import inspect
import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args, get_type_hints

from cyclopts import App, CycloptsError, Parameter, Token, convert

from directloss.errors import UserError
from directloss.lab.options import read_config
from directloss.lab.table import plain

STORE = Path("directloss.sqlite")
StorePath = Annotated[Path, Parameter(help="Results file.")]
ConfigFile = Annotated[Path | None, Parameter(help="TOML file with options, in a table named like the command.")]


def strictly(hint: Any, tokens: Sequence[Token]) -> Any:
    """What cyclopts makes of an option, but whole numbers are whole: it would round 3.5."""
    text = tokens[0].value
    if hint is int and not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise ValueError(f"{text!r} is not a whole number of at most 18 digits.")
    return convert(hint, [token.value for token in tokens])


def make_app(**options: Any) -> App:
    """An application in our manner."""
    options |= {"help_format": "plaintext", "suppress_keyboard_interrupt": False}
    return App(default_parameter=Parameter(converter=strictly), **options)


def configured(path: str, commands: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function the option --config, whose table ``path`` stands behind the command line.

    Its parameters' types are those of the file's values too; an ``Annotated[str, list]`` may be a list there.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function)
        plain_hints, whole_hints = get_type_hints(function), get_type_hints(function, include_extras=True)
        hints = {
            name: str | list if list in getattr(whole_hints[name], "__metadata__", ()) else plain_hints[name]
            for name, parameter in signature.parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }

        @wraps(function)
        def command(*values: Any, config: Path | None = None, **given: Any) -> None:
            layers = read_config(config, commands, path, hints) if config else {}
            paths = [name for name in layers if Path in (get_args(hints[name]) or (hints[name],))]
            function(*values, **{**layers, **{name: Path(layers[name]) for name in paths}, **given})

        extra = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile)
        vars(command)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), extra])
        return command

    return decorate


def run_app(app: App, arguments: Sequence[str] | None = None) -> None:
    """Run a command. What the user can put right is one line on standard error and exit code 2."""
    name = app.name[0]
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _fail(name, f"{' '.join(str(error).split())} See {name} --help.")
    except UserError as error:
        _fail(name, str(error))
    except sqlite3.Error as error:
        _fail(name, f"the results store failed ({error}); check its disk, or give another --store path")
    except KeyboardInterrupt:
        print(f"{name}: stopped; the same command goes on where it was", file=sys.stderr)
        sys.exit(130)


def _fail(name: str, message: str) -> NoReturn:
    print(f"{name}: {plain(message)}", file=sys.stderr)
    sys.exit(2)
