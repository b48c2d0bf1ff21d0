"""Print the lowest versions that pyproject.toml declares, as pip's constraints. torch is pinned by constraints.txt."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
wanted = [
    *project["dependencies"],
    *extras["lab"],
    *extras["sklearn"],
    *extras["highs"],
    *extras["dask"],
    *extras["dev"],
]
for name, version in sorted({match.groups() for one in wanted if (match := re.fullmatch(r"([\w-]+)>=([\d.]+)", one))}):
    if name != "torch":
        print(f"{name}=={version}")
