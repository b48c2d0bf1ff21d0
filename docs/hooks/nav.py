"""A mkdocs hook: an entry of the navigation that is a pattern stands for all pages that fit, the README first."""

from pathlib import Path
from typing import Any


def expand(entry: Any, docs: Path) -> Any:
    """A navigation with every pattern replaced by the list of its pages."""
    if isinstance(entry, list):
        return [expand(each, docs) for each in entry]
    if isinstance(entry, dict):
        return {title: expand(below, docs) for title, below in entry.items()}
    if "*" not in entry:
        return entry
    found = sorted(page.relative_to(docs).as_posix() for page in docs.glob(entry))
    return sorted(found, key=lambda page: not page.endswith("README.md"))


def on_config(config: Any) -> Any:
    config.nav = expand(config.nav, Path(config.docs_dir))
    return config
