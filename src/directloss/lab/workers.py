"""Who does the work: this process, several on this machine, or a dask cluster's."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from directloss.errors import UserError


@dataclass(frozen=True)
class Workers:
    """This machine's processes, or a dask cluster's."""

    jobs: int = 1
    executor: str = "local"  # or dask
    address: str | None = None  # of the dask scheduler

    @property
    def alone(self) -> bool:
        return self.executor == "local" and self.jobs == 1

    def connect(self) -> Any:
        """A client of the dask cluster. Raise UserError if it cannot be reached."""
        try:
            from distributed import Client
        except ImportError:
            raise UserError("--executor dask needs dask: pip install 'directloss[dask]'") from None
        if self.address is None:
            raise UserError("--executor dask needs --address, e.g. tcp://scheduler:8786")
        try:
            return Client(self.address, timeout=10)
        except (OSError, TimeoutError, ValueError) as error:
            raise UserError(
                f"no dask scheduler answers at {self.address} ({type(error).__name__}); is it running?"
            ) from None


def fan_out(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], workers: Workers
) -> Iterator[tuple[int, Any]]:
    """Call ``function`` on every task, in parallel, and yield (index, result) as they finish."""
    if workers.executor == "dask":
        yield from _on_cluster(function, tasks, workers)
        return
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    calls = [joblib.delayed(_indexed)(function, index, task) for index, task in enumerate(tasks)]
    try:
        yield from joblib.Parallel(n_jobs=workers.jobs, batch_size=1, return_as="generator_unordered")(calls)
    except TerminatedWorkerError:
        raise UserError("a worker process was killed (out of memory?); the same command goes on where it was") from None


def _indexed(function: Callable[..., Any], index: int, task: tuple[Any, ...]) -> tuple[int, Any]:
    return index, function(*task)


def _on_cluster(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], workers: Workers
) -> Iterator[tuple[int, Any]]:
    """Dask gives the tasks of a worker that dies to another one; without its scheduler nothing goes on."""
    from distributed import as_completed
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    client = workers.connect()
    for name in [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]:
        log = logging.getLogger(name)  # dask gives some of them handlers of their own
        log.handlers, log.propagate = [logging.NullHandler()], False  # what fails is said in one line, by us
    try:
        # Each call is worth making though an equal one was made before: the results are in our store, not in dask's.
        futures = [client.submit(_indexed, function, index, task, pure=False) for index, task in enumerate(tasks)]
        for future in as_completed(futures):
            yield future.result()
    except (CommClosedError, FutureCancelledError, OSError, TimeoutError) as error:
        raise UserError(
            f"the dask scheduler at {workers.address} was lost ({type(error).__name__}); what was finished is saved, "
            "and the same command goes on"
        ) from None
    except RuntimeError as error:
        if "deserialization" not in str(error):
            raise
        raise UserError(
            f"the dask cluster at {workers.address} cannot load this directloss; install the same version there"
        ) from None
    except KilledWorker as error:
        raise UserError(f"dask gave up on a task whose workers died again and again: {error}") from None
    finally:
        client.close(timeout=1)
