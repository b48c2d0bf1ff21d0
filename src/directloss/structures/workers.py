"""Processes that call a function for one instance after another.

Each worker has a pipe of its own, so that the parent knows which instance a worker that dies was solving.
"""

import pickle
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Workers:
    """So many spawned processes that call ``function``; they start at the first call and end with this object.

    A copy or an unpickled one starts processes of its own.
    """

    def __init__(self, function: Callable[..., Tensor], count: int):
        self.function, self.count = function, count
        try:
            self._pickled = pickle.dumps(function)
        except Exception as error:
            raise TypeError(
                f"workers need a function that can be pickled, one defined at the top of a module; got {function!r} "
                f"({error})"
            ) from None
        self._running: list[tuple[Any, Connection]] = []
        self._stop: Callable[[], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "count": self.count}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["function"], state["count"])  # type: ignore[misc]

    def map(self, instances: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
        """The function's result for every instance, in order."""
        if not self._running:
            self._start()
        waiting = list(reversed(range(len(instances))))
        results: list[Tensor | None] = [None] * len(instances)
        at: dict[Connection, int] = {}
        processes = {pipe: process for process, pipe in self._running}
        try:
            for pipe in processes:
                if waiting:
                    at[pipe] = waiting.pop()
                    _send(pipe, instances[at[pipe]])
            while at:
                for ready in wait(list(at)):
                    assert isinstance(ready, Connection)
                    index = at.pop(ready)
                    results[index] = _receive(ready, processes[ready], index)
                    if waiting:
                        at[ready] = waiting.pop()
                        _send(ready, instances[at[ready]])
        except BaseException:
            self.close()  # whoever still solves would answer the next call
            raise
        return [result for result in results if result is not None]

    def close(self) -> None:
        """End the processes; the next call starts new ones."""
        if self._stop is not None:
            self._stop()
        self._running, self._stop = [], None

    def _start(self) -> None:
        context = get_context("spawn")
        for _ in range(self.count):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there, self._pickled), daemon=True)
            process.start()
            there.close()
            self._running.append((process, here))
        self._stop = weakref.finalize(self, _end, self._running)


def _end(running: list[tuple[Any, Connection]]) -> None:
    for process, pipe in running:
        pipe.close()
        process.terminate()
    for process, _ in running:
        process.join(5)


def _send(pipe: Connection, tensors: tuple[Tensor, ...]) -> None:
    # As arrays: tensors would travel as files of shared memory, one each.
    message = pickle.dumps([tensor.detach().cpu().numpy() for tensor in tensors])
    with suppress(BrokenPipeError, ConnectionResetError):  # the worker died: reading its answer says so
        pipe.send_bytes(message)


def _receive(pipe: Connection, process: Any, index: int) -> Tensor:
    try:
        ok, answer = pickle.loads(pipe.recv_bytes())
    except (EOFError, ConnectionResetError):
        process.join(5)
        raise RuntimeError(
            f"the worker that solved instance {index} died (exit code {process.exitcode}); call the maximiser with "
            "this instance alone to see why"
        ) from None
    if not ok:
        raise RuntimeError(f"the maximiser failed for instance {index}:\n{answer}")
    return torch.from_numpy(answer)


def _work(pipe: Connection, pickled: bytes) -> None:
    torch.set_num_threads(1)
    function: Callable[..., Any] | None = None
    while True:
        try:
            arrays: list[np.ndarray] = pickle.loads(pipe.recv_bytes())
        except (EOFError, KeyboardInterrupt):
            return
        try:
            if function is None:
                function = pickle.loads(pickled)
            answer = function(*(torch.from_numpy(array) for array in arrays))
            if not isinstance(answer, Tensor):
                raise TypeError(f"it returned {type(answer).__name__}, expected a torch.Tensor shaped like its scores")
            reply: tuple[bool, Any] = (True, answer.detach().cpu().numpy())
        except Exception:
            reply = (False, traceback.format_exc())
        pipe.send_bytes(pickle.dumps(reply))
