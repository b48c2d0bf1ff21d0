"""A griffe extension: docstrings as they are written here, in Markdown."""

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

COMMENT = re.compile(r"^[^#]*\s\s#\s(.*)$")
DOCTEST = re.compile(r"^( *)>>> (?:.+\n?)+", re.MULTILINE)
STARRED = re.compile(r"\*(?=\w+(?![\w*]))")  # of *E, not of *emphasis*


class Docstrings(Extension):
    """A comment behind a field is its docstring; doctests are code; ``*E`` has a star and is not emphasised."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        text = STARRED.sub(r"\\*", obj.docstring.value)
        obj.docstring.value = DOCTEST.sub(self._fence, text)

    @staticmethod
    def _fence(match: re.Match[str]) -> str:
        return f"{match[1]}```pycon\n{match[0].replace(chr(92) + '*', '*').rstrip()}\n{match[1]}```\n"

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.lineno and (found := COMMENT.match(attr.lines_collection[attr.filepath][attr.lineno - 1])):
            attr.docstring = Docstring(found[1], lineno=attr.lineno, parent=attr)
