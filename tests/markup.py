"""A page as a tree, for tests that need no browser."""

from collections.abc import Iterator
from html.parser import HTMLParser

VOID = {"input", "link", "meta"}


class Element:
    def __init__(self, tag: str, attributes: dict[str, str]):
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element | str] = []

    def __iter__(self) -> Iterator["Element"]:
        """This element and all below it, in the page's order."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, *tags: str, of_class: str = "") -> list["Element"]:
        """The elements with one of these tags, and with the class if one is named."""
        found = [element for element in self if element.tag in tags]
        return [one for one in found if not of_class or of_class in one.attributes.get("class", "").split()]

    def with_id(self, name: str) -> "Element":
        (found,) = (element for element in self if element.attributes.get("id") == name)
        return found

    def values(self, *names: str) -> list[str]:
        return [element.attributes[name] for element in self for name in names if name in element.attributes]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("page", {})]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attributes})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(text: str) -> Element:
    """The page's root; fails where tags do not pair up."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    (root,) = parser.open
    return root
