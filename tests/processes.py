"""Commands as processes of their own.

They are forked from one process that has torch and the kernels loaded: starting Python for each takes seconds, and
nearly all of them go into the same imports. ``make torture`` starts each as a user does.
"""

import importlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

import pytest

LONG = bool(os.environ.get("DIRECTLOSS_TORTURE"))


@cache
def _forks():
    """The process to fork from. Python 3.11 does not tell it where modules are found, so the environment does."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["loaded"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        forkserver.ensure_running()
    return context


class Forked:
    """As much of ``subprocess.Popen`` as the tests use."""

    def __init__(self, function, arguments, cwd=None, limit=None):
        self._folder = tempfile.TemporaryDirectory()
        self._files = [Path(self._folder.name, name) for name in ("out", "err")]
        inside = (function, arguments, os.path.abspath(cwd or os.getcwd()), self._files, limit, dict(os.environ))
        self._process = _forks().Process(target=_call, args=inside)
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout=None):
        self._process.join(timeout)
        return self.poll()

    def communicate(self, timeout=None):
        if self.wait(timeout) is None:
            self.kill()
            raise TimeoutError(f"{self._process} did not end within {timeout} s")
        return tuple(path.read_text() if path.exists() else "" for path in self._files)

    def kill(self):
        """With all its children."""
        os.killpg(self.pid, signal.SIGKILL)


def _call(function, arguments, folder, files, limit, environment):
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(files, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    if limit is not None:
        limit_files(limit)
    module, _, name = function.partition(":")
    sys.argv = [module, *arguments]
    getattr(importlib.import_module(module), name)(arguments)


def limit_files(size):
    """No file of this process can grow beyond so many bytes: a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class Started(subprocess.Popen):
    """A program of Python's, started as a user does."""

    def __init__(self, module, arguments, cwd=None, limit=None):
        super().__init__(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=None if limit is None else lambda: limit_files(limit),
        )

    def kill(self):
        os.killpg(self.pid, signal.SIGKILL)


def start(*arguments, module="directloss", cwd=None, limit=None):
    """``python -m module arguments``; with ``limit``, no file can become larger than so many bytes.

    What starts processes itself is not forked: joblib's wait for ever in a fork.
    """
    arguments = [str(argument) for argument in arguments]
    if LONG or "--jobs" in arguments:
        return Started(module, arguments, cwd, limit)
    return Forked("directloss.cli:main" if module == "directloss" else f"{module}:main", arguments, cwd, limit)
