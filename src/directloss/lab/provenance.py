"""Where numbers come from: the code and the machine."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path


@cache
def code_version() -> str:
    """The commit this process runs, marked if the package differs from it; its version outside a checkout."""
    package = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # not installed into a checkout of something else
        return git("rev-parse", "--short=10", "HEAD") + ("-modified" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        from directloss import __version__

        return __version__


def machine() -> str:
    """The machine in a few words, without its name."""
    model = platform.processor() or platform.machine()
    try:
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                model = text.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
