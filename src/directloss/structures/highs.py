"""Linear and integer programmes by HiGHS, whose models are kept.

A thread keeps the models that it has built, by their size and their integer variables; a model remembers what it was
sent, and is sent only what differs for the next instance. So structures hold no model: copies and pickles need none,
and one that is made anew for each batch still finds the model of the batch before. What an instance gives does not
depend on the instances before: each starts afresh, and only the steps of one instance start from each other.
"""

import os
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray

OPTIMAL, INFEASIBLE, UNBOUNDED, ROUNDED_AWAY, FAILED = range(5)
# What HiGHS may violate a row by, relative to its largest coefficient, and what is accepted after rounding.
TOLERANCE = 1e-9
_ACCEPTED = 1e-6
_MOST_MODELS = 8
# Objectives are scaled to this size: HiGHS does not tell solutions apart whose difference is below its tolerances.
_OBJECTIVE_EXPONENT = 10
_OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
    "mip_feasibility_tolerance": TOLERANCE,
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
    # Three quarters of the time of a programme with a few dozen variables.
    "mip_heuristic_run_feasibility_jump": False,
}

_kept = threading.local()


def _forget_models() -> None:
    _kept.__dict__.clear()


os.register_at_fork(after_in_child=_forget_models)


def import_highspy() -> Any:
    """The module, or an ImportError that names the extra."""
    try:
        import highspy
    except ImportError as error:
        raise ImportError("dl.Program solves by HiGHS, which is missing: pip install 'directloss[highs]'") from error
    return highspy


def solve_batch(
    scores: Tensor,
    cost: Tensor,
    steps: Tensor,
    integer: Tensor,
    matrix: Tensor,
    row_lower: Tensor,
    row_upper: Tensor,
    lower: Tensor,
    upper: Tensor,
) -> Tensor:
    """The best y of instances (I, n) for every step, and a status after it: (T, I, n + 1), in the scores' dtype.

    All but the scores repeat along the instances with their own length.
    """
    every = scores.numpy()
    found = np.zeros((len(steps), len(every), every.shape[1] + 1), every.dtype)
    arrays = [tensor.numpy() for tensor in (matrix, row_lower, row_upper, lower, upper)]
    model = _model(integer.numpy(), matrix.shape[1])
    sent: list[int] | None = None
    for instance, own in enumerate(every):
        now = [instance % len(array) for array in arrays]
        if now != sent:
            model.constrain(*(array[index] for array, index in zip(arrays, now, strict=True)))
            sent = now
        objectives = own.astype(np.float64) + steps.numpy()[:, None] * cost[instance % len(cost)].double().numpy()
        model.restart()
        answers = [model.maximize(objective) for objective in objectives]
        found[:, instance, -1] = [status for status, _ in answers]
        if all(status == OPTIMAL for status, _ in answers):
            found[:, instance, :-1] = _best_of_all(objectives, np.stack([solution for _, solution in answers]))
    return torch.from_numpy(found)


def _best_of_all(objectives: Array, solutions: Array) -> Array:
    """Each step's own solution, unless that of another step is better, by less than HiGHS can tell."""
    values = objectives @ solutions.T
    better = values.max(1) > values.diagonal()
    return solutions[np.where(better, values.argmax(1), np.arange(len(solutions)))]


def _model(integer: Array, rows: int) -> "Model":
    """The thread's model for these variables and so many rows."""
    models: dict[tuple[bytes, int], Model] = _kept.__dict__.setdefault("models", {})
    key = (integer.tobytes(), rows)
    model = models.pop(key, None) or Model(integer)
    models[key] = model  # the last one is the latest used
    if len(models) > _MOST_MODELS:
        del models[next(iter(models))]
    return model


def scaled(matrix: Array) -> tuple[Array, Array]:
    """The rows divided by powers of two, so that their largest coefficient is about 1; and these powers."""
    largest = np.abs(matrix).max(-1, initial=0.0)
    power = np.ldexp(1.0, np.frexp(np.where(largest > 0, largest, 1.0))[1] - 1)
    return matrix / power[..., None], power


class Model:
    """A programme that HiGHS keeps: variables, and rows between bounds."""

    def __init__(self, integer: Array):
        self._highspy = import_highspy()
        self._highs = self._highspy.Highs()
        for name, value in _OPTIONS.items():
            self._highs.setOptionValue(name, value)
        self._integer, self._columns = integer, np.arange(len(integer), dtype=np.int32)
        # A start from a basis has no use for presolve, and small linear programmes take half the time without.
        self._highs.setOptionValue("presolve", "choose" if integer.any() else "off")
        # What was sent last: the matrix as given and with scaled rows, the bounds of rows and of variables.
        self._raw: Array | None = None
        self._matrix: Array = np.empty((0, 0))
        self._power: Array = np.empty(0)
        self._rows = self._bounds = (np.empty(0), np.empty(0))

    def constrain(self, matrix: Array, row_lower: Array, row_upper: Array, lower: Array, upper: Array) -> None:
        """Send what differs from what was sent last."""
        changed = self._raw is None or not np.array_equal(self._raw, matrix)
        if changed:
            self._raw = matrix.copy()
            self._matrix, self._power = scaled(matrix)
        rows = (row_lower / self._power, row_upper / self._power)
        if changed:
            self._pass(rows, (lower, upper))
        elif not all(map(np.array_equal, rows, self._rows)):
            self._highs.changeRowsBounds(len(rows[0]), np.arange(len(rows[0]), dtype=np.int32), *rows)
        if not changed and not all(map(np.array_equal, (lower, upper), self._bounds)):
            self._highs.changeColsBounds(len(lower), self._columns, lower, upper)
        self._rows, self._bounds = rows, (lower.copy(), upper.copy())

    def _pass(self, rows: tuple[Array, Array], bounds: tuple[Array, Array]) -> None:
        """The whole model, without an objective."""
        lp = self._highspy.HighsLp()
        lp.num_row_, lp.num_col_ = self._matrix.shape
        lp.col_cost_ = np.zeros(lp.num_col_)
        lp.col_lower_, lp.col_upper_ = bounds
        lp.row_lower_, lp.row_upper_ = rows
        where, columns = self._matrix.nonzero()
        lp.a_matrix_.format_ = self._highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.searchsorted(where, np.arange(lp.num_row_ + 1)).astype(np.int32)
        lp.a_matrix_.index_ = columns.astype(np.int32)
        lp.a_matrix_.value_ = self._matrix[where, columns]
        lp.sense_ = self._highspy.ObjSense.kMaximize
        if self._integer.any():
            kinds = self._highspy.HighsVarType
            lp.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in self._integer]
        self._highs.passModel(lp)

    def restart(self) -> None:
        """Forget where the last solve ended."""
        self._highs.clearSolver()

    def maximize(self, objective: Array) -> tuple[int, Array]:
        """A status and the best solution; zeros where there is none."""
        top = np.frexp(np.abs(objective).max())[1]
        self._highs.changeColsCost(len(objective), self._columns, np.ldexp(objective, _OBJECTIVE_EXPONENT - top))
        if not self._integer.any():
            return self._run(relaxed=False)
        # Often the relaxation is whole already, and it takes a fraction of the time.
        status, y = self._run(relaxed=True)
        if status == INFEASIBLE or (status == OPTIMAL and np.abs(y - y.round())[self._integer].max() <= TOLERANCE):
            return self._rounded(status, y)
        self.restart()  # a fractional solution is a bad start
        found = self._rounded(*self._run(relaxed=False))
        self.restart()
        return found

    def _run(self, relaxed: bool) -> tuple[int, Array]:
        self._highs.setOptionValue("solve_relaxation", relaxed)
        self._highs.run()
        status = self._status()
        return status, np.array(self._highs.getSolution().col_value) if status == OPTIMAL else np.zeros(
            len(self._columns)
        )

    def _status(self) -> int:
        kinds = self._highspy.HighsModelStatus
        status = self._highs.getModelStatus()
        if status == kinds.kUnboundedOrInfeasible:
            self._highs.changeColsCost(len(self._columns), self._columns, np.zeros(len(self._columns)))
            self.restart()
            self._highs.run()
            return UNBOUNDED if self._highs.getModelStatus() == kinds.kOptimal else INFEASIBLE
        known = {kinds.kOptimal: OPTIMAL, kinds.kInfeasible: INFEASIBLE, kinds.kUnbounded: UNBOUNDED}
        return known.get(status, FAILED)

    def _rounded(self, status: int, y: Array) -> tuple[int, Array]:
        """Integer variables as whole numbers, and whether they satisfy the rows then."""
        y = np.where(self._integer, y.round(), y)
        activity, tolerance = self._matrix @ y, _ACCEPTED * np.maximum(1.0, np.abs(self._matrix) @ np.abs(y))
        kept = (activity >= self._rows[0] - tolerance) & (activity <= self._rows[1] + tolerance)
        return (ROUNDED_AWAY if status == OPTIMAL and not kept.all() else status), y
