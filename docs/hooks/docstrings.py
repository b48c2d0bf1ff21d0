"""A griffe extension: docstrings as they are written here, read as Markdown."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from griffe import Alias, Class, Extension, Module, Object

COMMENT = re.compile(r"\s\s# (.*)$")
# Doctests and code, which stay as they are, or the star of *E, but not of *emphasis*.
PART = re.compile(r"^(?P<indent> *)>>> (?:.+(?:\n|$))+|``.+?``|`[^`\n]+`|\*(?=\w+(?![\w*]))", re.MULTILINE)


class Docstrings(Extension):
    """Doctests become code, a star before a name a star, and a comment behind a field the field's description.

    The public names are those of the package's table, which imports them when they are first used.
    """

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        table = ast.literal_eval(str(pkg.members["_PUBLIC"].value))
        for name, module in table.items():
            pkg.set_member(name, Alias(name, f"{pkg.name}.{module}.{name}", parent=pkg))

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if not obj.docstring:
            return
        if isinstance(obj, Class) and (fields := "\n".join(_fields(obj))):
            obj.docstring.value += f"\n\nAttributes:\n{fields}"
        obj.docstring.value = PART.sub(_markdown, obj.docstring.value)


def _fields(cls: Class) -> Iterator[str]:
    lines = cls.lines_collection[cls.filepath]
    for name, member in cls.members.items():
        if member.is_attribute and member.lineno and (comment := COMMENT.search(lines[member.lineno - 1])):
            yield f"    {name}: {comment[1]}"


def _markdown(match: re.Match[str]) -> str:
    if match[0] == "*":
        return r"\*"
    if match["indent"] is None:
        return match[0]
    return f"{match['indent']}```pycon\n{match[0].rstrip()}\n{match['indent']}```\n"
