"""Tests in forked processes: which lines they reach, and which fails first once a mutant is put in."""

import gc
import importlib.machinery
import json
import math
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import pytest
from mutation import SOURCES, Mutant

SURVIVED = "survived"


def forked(work: Callable[[], str], seconds: float | None = None) -> str:
    """What ``work`` returns in a process of its own, or what ended that process. ``seconds`` are of computing."""
    reader, writer = os.pipe()
    if pid := os.fork():
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status > 0:
            sys.exit("a mistake of this tool, not of a mutant: see above")
        return signal.Signals(-status).name if status < 0 else said
    status = 1
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds),) * 2)
            signal.alarm(1800)  # for what waits and computes nothing
        with os.fdopen(writer, "w") as pipe:
            pipe.write(work())
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def collected(files: list[str], then: Callable[[pytest.Session], str]) -> str:
    """What ``then`` makes of a session that has collected the files."""

    class Plugin:
        result = "tests cannot be collected"

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            if not session.testsfailed:
                self.result = then(session)
            return True

    plugin = Plugin()
    pytest.main(["-p", "no:cacheprovider", "-p", "no:faulthandler", "--capture=no", *files], [plugin])
    return plugin.result


def run(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> bool:
    """Whether the test passes."""
    failed = session.testsfailed
    session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return session.testsfailed == failed


def reached_lines(session: pytest.Session, files: Sequence[str]) -> str:
    """Of each test whether it passes, how long it takes and which lines of the files it comes through, as JSON."""
    paths = {str(SOURCES / file): file for file in files}
    found: dict[str, Any] = {}
    for item, following in zip(session.items, [*session.items[1:], None], strict=True):
        seen: dict[str, set[int]] = {}

        def line(frame: Any, *_: Any, seen: dict[str, set[int]] = seen) -> Any:
            seen.setdefault(paths[frame.f_code.co_filename], set()).add(frame.f_lineno)
            return line

        start = time.process_time()
        sys.settrace(lambda frame, *_, line=line: line if frame.f_code.co_filename in paths else None)
        passes = run(session, item, following)
        sys.settrace(None)
        lines = {file: sorted(numbers) for file, numbers in seen.items()}
        found[item.nodeid] = {"passes": passes, "seconds": time.process_time() - start, "lines": lines}
    return json.dumps(found)


def first_failure(session: pytest.Session, tests: list[str]) -> str:
    """The first of these tests that fails, or ``SURVIVED``."""
    items = {item.nodeid: item for item in session.items}
    chosen = [items[test] for test in tests]
    pairs = zip(chosen, [*chosen[1:], None], strict=False)  # perhaps no test comes by
    return next((item.nodeid for item, following in pairs if not run(session, item, following)), SURVIVED)


def functions() -> list[FunctionType]:
    """Those of the library."""
    gc.unfreeze()  # the tests' own hook hides all objects
    found = [one for one in gc.get_objects() if type(one) is FunctionType]
    gc.freeze()  # what a forked process does not visit, it need not copy
    return [one for one in found if one.__code__.co_filename.startswith(str(SOURCES))]


def put_in(mutant: Mutant, functions: list[FunctionType]) -> None:
    """Give the functions of an imported file their changed code."""

    def codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
        yield (code.co_qualname, code.co_firstlineno), code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from codes(constant)

    changed = dict(codes(mutant.code()))
    for function in functions:
        if function.__code__.co_filename == str(SOURCES / mutant.file):
            function.__code__ = changed[function.__code__.co_qualname, function.__code__.co_firstlineno]


def put_in_when_imported(mutant: Mutant) -> None:
    """Let the import of a file find the changed one."""
    get_code = importlib.machinery.SourceFileLoader.get_code

    def changed(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        return mutant.code() if loader.path == str(SOURCES / mutant.file) else get_code(loader, name)

    importlib.machinery.SourceFileLoader.get_code = changed  # type: ignore[method-assign,assignment]
