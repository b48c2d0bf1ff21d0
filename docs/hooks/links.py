"""A mkdocs hook: what a page links to outside docs/ becomes a page of the site.

The start page is the README, with docs/index.md before its licence. Other Markdown files and source files that some
page links to get pages of their own. The text of a link to a source file is a piece of its code, in backquotes: the
link leads to the line it stands in, wherever that moves to.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Within the site, or to a file: no address with a scheme, and no bare anchor.
LINK = re.compile(r"(?P<text>\[`[^`]+`)?\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")

_origins: dict[str, Path] = {}  # the files outside docs/, by their pages


def links(markdown: str, folder: Path) -> Iterator[tuple[re.Match[str], Path]]:
    """Every relative link to a file of the repository, with the file."""
    for match in LINK.finditer(markdown):
        path = (folder / match["target"]).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            yield match, path


def line_of(path: Path, fragment: str) -> int:
    """The number of the one line of ``path`` that has ``fragment`` in it."""
    found = [number for number, line in enumerate(path.read_text().splitlines(), 1) if fragment in line]
    if len(found) != 1:
        lines = f"in the lines {found}" if found else "nowhere"
        raise ValueError(f"`{fragment}` is {lines} of {path.relative_to(ROOT)}; a link needs a text that is there once")
    return found[0]


def site_path(path: Path) -> str:
    """Where a file of the repository is in the site."""
    if path == ROOT / "README.md":
        return "index.md"
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    relative = path.relative_to(ROOT).as_posix()
    # Not a README: mkdocs would make it the index of a folder.
    return relative + ".md" if path.suffix == ".py" else relative.replace("/README.md", ".md")


def rewrite(markdown: str, folder: Path, page: str) -> str:
    """The text of a file in ``folder`` with its links as they must be on the site's ``page``."""
    parts, end = [], 0
    for match, path in links(markdown, folder):
        anchor = match["anchor"] or ""
        if path.suffix == ".py":
            if not match["text"]:
                raise ValueError(f"a link of {page} to {match['target']} has no piece of code as its text")
            anchor = f"#__span-0-{line_of(path, match['text'][2:-1])}"
        target = posixpath.relpath(site_path(path), posixpath.dirname(page) or ".")
        parts += [markdown[end : match.start()], match["text"] or "", f"]({target}{anchor})"]
        end = match.end()
    return "".join(parts) + markdown[end:]


def outside() -> list[Path]:
    """The Markdown and source files outside docs/ that some page links to."""
    waiting, found = [*DOCS.rglob("*.md"), ROOT / "README.md"], []
    while waiting:
        page = waiting.pop()
        for _, path in links(page.read_text(), page.parent):
            if not path.is_relative_to(DOCS) and path not in (*found, ROOT / "README.md"):
                found.append(path)
                waiting += [path] * (path.suffix == ".md")
    return sorted(found)


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File, InclusionLevel

    _origins.update((site_path(path), path) for path in outside())
    for uri, path in _origins.items():
        content = path.read_bytes()
        if path.suffix == ".py":
            header = "---\nhide: [navigation, toc]\nsearch: {exclude: true}\n---\n"
            code = f'``````{{.python linenums="1"}}\n{content.decode()}``````\n'
            content = f"{header}# {path.relative_to(ROOT)}\n\n{code}".encode()
        files.append(File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri
    if uri.endswith(".py.md"):
        return markdown
    if uri == "index.md":
        text, licence, end = rewrite((ROOT / "README.md").read_text(), ROOT, uri).partition("## Licence")
        return f"{text}#{rewrite(markdown, DOCS, uri)}\n{licence}{end}"  # one heading level down
    return rewrite(markdown, _origins.get(uri, DOCS / uri).parent, uri)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> None:
    """Tell mkdocs, which checks anchors, of those in code."""
    page.present_anchor_ids |= set(re.findall(r'id="(__span-\d+-\d+)"', html))
