"""Options of a command: fields of a dataclass with help and bounds, read from the command line or a TOML file."""

import hashlib
import importlib
import inspect
import math
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, get_args

from directloss.errors import UserError


@dataclass(frozen=True)
class Option:
    """What the command line knows about a field."""

    help: str
    name: str = ""  # on the command line; by default the field's
    least: float | None = None
    most: float | None = None
    above: float | None = None  # greater than
    nonzero: bool = False
    of: Callable[[], Iterable[str]] | None = None  # the names to choose from
    own: bool = False  # or the user's own, as module:name
    preset: Any = None  # if nothing is given: for an axis a list with commas; None leaves it to the recipe

    def check(self, name: str, value: Any, listed: bool = False) -> None:
        """Raise UserError if a value is not allowed."""
        what = f"--{name.replace('_', '-')} {'has' if listed or self.of else 'is'}"
        if self.of is not None and value not in (allowed := tuple(self.of())):
            if not (self.own and ":" in str(value)):
                own = ", or your own as module:name" if self.own else ""
                raise UserError(f"{what} {value!r}; choose from {', '.join(allowed)}{own}")
            load_own(value)
        if isinstance(value, bool | str):
            return
        for broken, expected in (
            (not math.isfinite(value), "a finite number"),
            (self.nonzero and not value, "a finite number other than 0"),
            (self.above is not None and not value > self.above, f"a finite number above {_plain(self.above)}"),
            (self.least is not None and value < self.least, f"at least {_plain(self.least)}"),
            (self.most is not None and value > self.most, f"at most {_plain(self.most)}"),
        ):
            if broken:
                raise UserError(f"{what} {value}; expected {expected}")


def _plain(bound: float | None) -> str:
    """Whole numbers with all their digits."""
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def option(default: Any = MISSING, help: str = "", **about: Any) -> Any:  # noqa: A002
    """A field of a configuration that is an option of the command."""
    return field(default=default, metadata={"option": Option(help, **about)})


def split(name: str, kind: type, value: str | Sequence[Any]) -> list[Any]:
    """The parts of "5,10,25", or of a file's list, each once, in their order."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else list(value)
    if not parts:
        raise UserError(f"--{name} is empty; give one or more, with commas")
    return list(dict.fromkeys(_number(name, kind, part) for part in parts))


def _number(name: str, kind: type, part: Any) -> Any:
    if kind is str:
        return str(part)
    try:
        return kind(part)
    except (TypeError, ValueError):
        what = "whole numbers" if kind is int else "numbers"
        raise UserError(f"--{name} has {part!r}; expected {what} with commas, e.g. 5,10,25") from None


def load_own(name: str) -> Any:
    """The user's own object "module:name"; modules of the working folder are found."""
    module, _, attribute = name.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0] and error.name != module:
            raise
        raise UserError(f"{name}: there is no module {module} here; run where {module}.py is, or install it") from None
    except (AttributeError, ValueError):
        raise UserError(f"{name}: the module {module} has no {attribute!r}; give module:name") from None


def digest_own(names: Iterable[str]) -> str:
    """A fingerprint of the modules of the user's own objects, empty if there are none."""
    sources = [inspect.getsourcefile(sys.modules[name.partition(":")[0]]) for name in names if load_own(name)]
    texts = [Path(source).read_bytes() for source in sources if source]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16] if texts else ""


def read_config(path: Path, commands: Iterable[str], command: str, hints: dict[str, Any]) -> dict[str, Any]:
    """The options of a command in a TOML file, which has a table for each command: [sort], or [results.list]."""
    try:
        layers = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; give --config an existing file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
    first, *rest = command.split()
    for name, value in layers.items():
        if name not in commands:
            raise UserError(f"{path} sets {name} outside a command's table; put it under [{first}]")
        if not isinstance(value, dict):
            raise UserError(f"{path} sets {name} = {value!r}; expected a table, [{name}], with options below it")
    found = layers.get(first, {})
    for part in rest:
        found = found.get(part, {})
    for name, value in found.items():
        if name.replace("-", "_") not in hints:
            raise UserError(f"{path} sets the unknown option {name}; see directloss {command} --help")
        _check_type(path, name, value, hints[name.replace("-", "_")])
    return {name.replace("-", "_"): value for name, value in found.items()}


def _check_type(path: Path, name: str, value: Any, hint: Any) -> None:
    """Raise UserError if a file sets an option to what it cannot be."""
    kinds = get_args(hint) or (hint,)
    if isinstance(value, list):
        fits = list in kinds and all(type(part) in (str, int, float) for part in value)
    else:
        as_number, as_path = type(value) is int and float in kinds, type(value) is str and Path in kinds
        fits = type(value) in kinds or as_number or as_path
    if not fits:
        names = {list: "a list, e.g. [3], or text with commas", bool: "true or false", int: "a whole number"}
        names |= {float: "a number", Path: "text", str: "text"}
        raise UserError(f"{path} sets {name} = {value!r}; expected {next(names[k] for k in names if k in kinds)}")
