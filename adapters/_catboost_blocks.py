"""How CatBoost's questions for blocks of rows are answered from one gradient of all rows.

CatBoost asks an objective for the derivatives of *blocks* of rows, from several threads, without saying which rows they are
or which queries there are. It shows the scores of all rows, in their order, only to the ``eval_metric``, after each
iteration. So one object is both: as the metric it takes the scores, from which the core computes the gradient of all rows
at once; as the objective it serves blocks of it. Where a block lies follows from the address of its labels. None of that
is taken on trust: every block's labels, weights and scores must be those that are expected, and all rows must have been
asked for exactly once, or training stops.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives._constants import Array
from stochasticrank_objectives.losses import BoundLoss

Floats = NDArray[np.float32]

WHAT_WORKS = (
    'what works is boosting_type="Plain", leaf_estimation_iterations=1, metric_period=1, model_shrink_rate=0 (SGLB shrinks '
    "by itself), has_time=True where there are categorical, text or embedding features, and the same object as "
    "loss_function and eval_metric; CatBoostStochasticRank sets all of it"
)


@dataclasses.dataclass(frozen=True)
class Learn:
    """What is known of the pool to train on before training."""

    labels: Floats
    weights: Floats
    scores: Array  # where training starts
    iteration: int  # likewise
    bound: BoundLoss


class Pass:
    """CatBoost's asking for all rows once in an iteration: for the structure of a tree, or for its leaves."""

    def __init__(self, base: int, rows: int) -> None:
        self.base = base  # the address of the first row's label
        self.rows = rows
        self.blocks: dict[int, int] = {}  # the rows in which blocks began, and their lengths


class Training:
    """One training: its scores and iteration, and the derivatives served from them."""

    def __init__(self, learn: Learn) -> None:
        self.learn = learn
        self.iteration = learn.iteration
        self.scores = learn.scores.copy()
        self.derivatives = np.empty((2, len(learn.labels))).T  # each derivative's numbers stand together
        self.ready = False
        # CatBoost has two copies of the labels, for the structure of a tree and for its leaves. They stay where they are, so
        # the address of a block tells which rows it has.
        self.passes: list[Pass] = []
        self.known: dict[int, tuple[int, int, Pass]] = {}  # blocks by address: their rows, and in which pass
        self.waiting: list[tuple[int, bytes]] = []
        self.lock = threading.Lock()
        self.error: str | None = None

    def serve(self, scores: Array, labels: Floats, weights: Floats | None) -> Array:
        """First and second derivatives of a block.

        There are hundreds of blocks per iteration, so one that was found right is known again by its address: then only the
        scores at its ends are compared, except in every 16th iteration, when all of it is.
        """
        if not self.ready:
            self._differentiate()
        address = labels.__array_interface__["data"][0]
        known = self.known.get(address)
        if known is None:
            return self._serve_checked(address, scores, labels, weights)
        begin, end, within = known
        expected = self.scores
        if (
            end - begin != len(scores)
            or begin in within.blocks
            or scores[0] != expected[begin]
            or scores[-1] != expected[end - 1]
        ):
            return self._serve_checked(address, scores, labels, weights)
        within.blocks[begin] = end - begin
        return self.derivatives[begin:end]

    def _serve_checked(self, address: int, scores: Array, labels: Floats, weights: Floats | None) -> Array:
        learn = self.learn
        within = self._pass(address) or self._new_pass(address, labels)
        begin = (address - within.base) // 4
        end = begin + len(labels)
        if end > len(learn.labels) or _differ(labels, learn.labels[begin:end]):
            raise ValueError(
                f"the labels of {len(labels)} rows are not those of rows {begin} to {end} of the Pool: CatBoost has "
                f"permuted rows, or labels that repeat hide where a block lies (set thread_count=1); {WHAT_WORKS}"
            )
        if weights is not None and _differ(weights, learn.weights[begin:end]):
            raise ValueError(
                "the weights are not those that the Pool tells, which leaves out group_weight; give weight= instead, one "
                "per row and the same throughout a query"
            )
        if begin in within.blocks:
            raise ValueError(
                f"CatBoost asks twice in iteration {self.iteration} for the gradient of row {begin}; {WHAT_WORKS}"
            )
        expected = self.scores[begin:end]
        if _differ(scores, expected) and not np.allclose(scores, expected, rtol=1e-9, atol=1e-12):
            raise ValueError(
                f"the scores of rows {begin} to {end} in iteration {self.iteration} are not those that "
                f"{self._scores_are()}; {WHAT_WORKS}"
            )
        within.blocks[begin] = len(labels)
        self.known[address] = begin, end, within
        return self.derivatives[begin:end]

    def _scores_are(self) -> str:
        if self.iteration > self.learn.iteration:
            return "the eval_metric was shown last"
        return (
            "training starts from: a model to go on from must also be given to CatBoostObjective as init_model=, and a "
            "snapshot cannot be resumed: save the model and go on from it with init_model="
        )

    def _differentiate(self) -> None:
        with self.lock:
            if self.ready:
                return
            gradient, hessian = self.learn.bound.derivatives(self.scores, self.iteration)
            # CatBoost maximises. Where the second derivative is minus the weight, a Newton step is a gradient step.
            np.negative(gradient, out=self.derivatives[:, 0])
            np.negative(self.learn.weights if hessian is None else hessian, out=self.derivatives[:, 1])
            self.ready = True

    def _pass(self, address: int) -> Pass | None:
        for within in self.passes:
            if 0 <= address - within.base < 4 * within.rows:
                return within
        return None

    def _new_pass(self, address: int, labels: Floats) -> Pass:
        """The pass of a block in an array not seen before: where it lies there is found by its labels.

        Where these are found more than once, the lowest of the blocks that the threads begin with is the first. That is only
        likely, but if it is wrong, other blocks of this iteration will not be where their labels are.
        """
        self.waiting.append((address, labels.tobytes()))
        with self.lock:
            within = self._pass(address)
            if within is None:
                whole = self.learn.labels.tobytes()
                lowest, begin = address, _find_block(whole, labels.tobytes(), 0)
                if begin >= 0 and _find_block(whole, labels.tobytes(), begin + 1) >= 0:
                    time.sleep(0.02)  # lets the other threads come in with the blocks that they begin with
                    lowest, block = min(one for one in self.waiting if self._pass(one[0]) is None)
                    begin = _find_block(whole, block, 0)
                if begin < 0:
                    raise ValueError(
                        f"the labels of a block of {len(labels)} rows are nowhere in the Pool: it is another Pool than the "
                        "one given to CatBoostObjective (in cv, every fold is), or CatBoost has permuted rows; "
                        f"{WHAT_WORKS}"
                    )
                self.passes.append(Pass(lowest - 4 * begin, len(self.learn.labels)))
                within = self._pass(address)
                self.waiting.clear()
        if within is None:
            raise ValueError(f"it cannot be told which rows CatBoost asks for; set thread_count=1, and {WHAT_WORKS}")
        return within

    def next(self, scores: Array) -> None:
        """The scores after an iteration, which are those of the next."""
        if not self.ready:
            return  # a pool in eval_set with the same labels and queries
        for within in self.passes:
            if (asked := sum(within.blocks.values())) != within.rows:
                raise ValueError(f"CatBoost asked for the gradient of {asked} of {within.rows} rows; {WHAT_WORKS}")
            within.blocks.clear()
        self.scores[:] = scores  # CatBoost goes on to change its own
        self.iteration += 1
        self.ready = False
        if self.iteration % 16 == 0:
            self.known.clear()


def _differ(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether blocks differ; called so often that numpy's own functions would be slow."""
    return bool(np.count_nonzero(one != other))


def _find_block(labels: bytes, block: bytes, begin: int) -> int:
    """The first row, from `begin` on, where the labels of a block are found; -1 if nowhere."""
    at = labels.find(block, 4 * begin)
    while at % 4 and at >= 0:
        at = labels.find(block, at + 1)
    return at // 4 if at >= 0 else -1
