"""Writing files whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from directloss.errors import UserError


@contextmanager
def open_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Write ``path`` by way of a temporary file beside it, so that no reader and no crash sees half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; give another path") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write all of ``path`` or nothing."""
    with open_atomically(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
