"""CatBoost: an objective and a metric for ``CatBoost``, and a model that binds them to its data by itself.

CatBoost asks an objective for the derivatives of *blocks* of rows, from several threads, without saying which rows they are
or which queries there are. It shows the scores of all rows, in their order, only to the ``eval_metric``, after each
iteration. So one object is both: as the metric it takes the scores, from which the core computes the gradient of all rows
at once; as the objective it serves blocks of it. Where a block lies follows from the address of its labels. Nothing of that
is taken on trust: every block's labels, weights and scores must be those that are expected, and all rows must have been
asked for exactly once, or training stops.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives._constants import Array
from stochasticrank_objectives.evaluation import Empty, Evaluation, Ties, bind_evaluation
from stochasticrank_objectives.losses import BoundLoss, Loss
from stochasticrank_objectives.metrics import Metric, parse_metric

from ._common import as_loss, require

catboost = require("catboost")

_Floats = NDArray[np.float32]

_SETTINGS = (
    'what works is boosting_type="Plain", leaf_estimation_iterations=1, metric_period=1, model_shrink_rate=0 (SGLB shrinks '
    "by itself), has_time=True where there are categorical, text or embedding features, and the same object as "
    "loss_function and eval_metric; CatBoostStochasticRank sets all of it"
)


def _labels(pool: Any) -> _Floats:
    if not isinstance(pool, catboost.Pool):
        raise ValueError(f"pool must be a catboost.Pool with labels and group_id, got {type(pool).__name__}")
    if not pool.has_label():
        raise ValueError("the Pool has no labels; give it label=")
    return np.asarray(pool.get_label()).astype(np.float32)  # as CatBoost keeps them


def _query_ids(pool: Any) -> NDArray[np.uint64]:
    ids = pool.get_group_id_hash()
    if ids is None:
        raise ValueError("the Pool has no queries; give it group_id=, the query id of each row")
    return np.asarray(ids)


def _pools(pools: Any) -> list[Any]:
    return [] if pools is None else list(pools) if isinstance(pools, (list, tuple)) else [pools]


class _Known:
    """A pool that a metric may be asked about: CatBoost passes only labels and weights, by which it must be found again."""

    def __init__(self, pool: Any) -> None:
        self.labels = _labels(pool)
        self.ids = _query_ids(pool)
        self._weights: _Floats | None = None
        self._evaluation: Evaluation | None = None

    def evaluation(self, metric: CatBoostMetric, weights: _Floats | None) -> Evaluation:
        """The metric of this pool, bound when it is first asked for: weights of groups are not known before."""
        if self._evaluation is None or not _same_weights(weights, self._weights):
            self._weights = None if weights is None else weights.copy()
            starts = np.flatnonzero(np.append(True, self.ids[1:] != self.ids[:-1]))
            whole = weights is not None and bool((np.diff(weights)[np.diff(self.ids) == 0] == 0).all())
            self._evaluation = bind_evaluation(
                metric.metric, self.labels, qid=self.ids, weights=weights[starts] if weights is not None and whole else None,
                ties=metric.ties, empty=metric.empty, threads=metric.threads,
            )  # fmt: skip
        return self._evaluation


def _same_weights(one: _Floats | None, other: _Floats | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


class CatBoostMetric:
    """A ranking metric as ``eval_metric`` of CatBoost, whatever its ``loss_function`` is.

    CatBoost does not tell a metric which queries there are, so it must know the pools: the one to train on and those to
    evaluate. Weights of the pools weigh queries, if they are the same throughout each query; others are left out.
    CatBoost reports the metric under its name.

    Parameters
    ----------
    metric
        A name such as ``"ndcg@10"`` or a metric.
    pools
        The ``Pool``, or a list of them: the one given to ``fit`` and those in ``eval_set``, each with group_id.
    ties, empty, threads
        As in `evaluate`. CatBoost's own NDCG takes ties in the worst order too, but counts a query without relevant
        documents as 1.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> pool = catboost.Pool(data.features, data.labels, group_id=data.qid)
    >>> model = catboost.CatBoost({"loss_function": "YetiRank", "eval_metric": CatBoostMetric("ndcg@10", pool),
    ...     "iterations": 3, "verbose": False, "allow_writing_files": False}).fit(pool)
    >>> len(model.get_evals_result()["learn"]["ndcg@10"])
    3
    """

    no_jit = True  # keeps CatBoost from trying to compile the methods, which use self

    def __init__(
        self,
        metric: str | Metric,
        pools: Any = None,
        *,
        ties: Ties = "worst",
        empty: Empty = 0.0,
        threads: int | None = None,
    ) -> None:
        self.metric = parse_metric(metric)
        self.ties: Ties = ties
        self.empty: Empty = empty
        self.threads = threads
        self._known = [_Known(pool) for pool in _pools(pools)]

    def __repr__(self) -> str:
        return f"CatBoostMetric({str(self.metric)!r}, ties={self.ties!r}, empty={self.empty!r})"

    def __reduce__(self) -> Any:
        """Pickles hold no data."""
        return functools.partial(
            CatBoostMetric, self.metric, ties=self.ties, empty=self.empty, threads=self.threads
        ), ()  # fmt: skip

    def __deepcopy__(self, memo: Any) -> CatBoostMetric:
        """CatBoost copies its parameters for every training: the data are shared, the state of a training is not."""
        if not self._known:
            return self
        # CatBoost reports a metric by the name of its class.
        copy: CatBoostMetric = object.__new__(type(str(self.metric), (type(self),), {}))
        copy.__dict__.update(self.__dict__)
        return copy

    def is_max_optimal(self) -> bool:
        """All these metrics are better when larger."""
        return True

    def get_final_error(self, error: float, weight: float) -> float:
        """`evaluate` already gives the mean."""
        return error

    def evaluate(self, approxes: Any, target: _Floats, weight: _Floats | None) -> tuple[float, float]:
        """The metric of the pool that has these labels."""
        return self._find(target).evaluation(self, weight).mean(approxes[0]), 1.0

    def _find(self, target: _Floats) -> _Known:
        found = [known for known in self._known if np.array_equal(known.labels, target)]
        if not found:
            raise ValueError(
                f"CatBoost evaluates {len(target)} rows whose labels are not, in this order, those of a Pool that {self!r} "
                "was given; it must know the Pool of fit and all of eval_set. If it does, CatBoost has permuted rows: "
                f"{_SETTINGS}"
            )
        if any(not np.array_equal(found[0].ids, other.ids) for other in found[1:]):
            raise ValueError(
                f"two pools have the same {len(target)} labels but different queries, and CatBoost does not say which one "
                "it evaluates; leave one of them out of eval_set"
            )
        return found[0]


@dataclasses.dataclass(frozen=True)
class _Learn:
    """What is known of the pool to train on before training."""

    labels: _Floats
    weights: _Floats
    scores: Array  # where training starts
    iteration: int  # likewise
    bound: BoundLoss


def _learn(loss: Loss, pool: Any, known: _Known, init_model: Any) -> _Learn:
    weights = np.asarray(pool.get_weight(), np.float32)
    bound = loss.bind(known.labels, weights=None if (weights == 1).all() else weights, qid=known.ids)
    baseline = np.asarray(pool.get_baseline(), np.float64)
    scores = baseline[:, 0] if baseline.size else np.zeros(len(known.labels))
    if init_model is None:
        return _Learn(known.labels, weights, scores, 0, bound)
    predicted = init_model.predict(pool, prediction_type="RawFormulaVal")  # with the baseline, if there is one
    return _Learn(known.labels, weights, predicted, init_model.tree_count_, bound)


class _Pass:
    """CatBoost's asking for all rows once in an iteration: for the structure of a tree, or for its leaves.

    It asks from all its threads, of which Python runs one at a time. Threads that wait for Python wake each other at every
    block, which takes longer than serving it. So the first thread to come goes on alone, while the others wait at a door.
    It gets far: CatBoost gives it the blocks of those that wait, up to the quarter of its own that each has begun with.
    """

    WORTH = 50_000  # rows from which on there is a door
    PATIENCE = 2e-7  # seconds a row: whoever waits for longer opens the door, and it will open earlier from then on

    def __init__(self, base: int, rows: int) -> None:
        self.base = base  # the address of the first row's label
        self.rows = rows
        self.blocks: dict[int, int] = {}  # the rows in which blocks began, and their lengths
        self._share = 0.98 if rows >= self.WORTH else 0.0  # of what the first can get, the part after which the door opens
        self._door = threading.Event()
        self.clear()

    def clear(self) -> None:
        """The next iteration."""
        self.blocks.clear()
        self._first: int | None = None
        self._late: set[int] = set()
        self._served, self._limit = 0, self._share * self.rows  # rows
        self._door.clear()

    def enter(self) -> None:
        """Wait until the door is open, unless this thread is the first."""
        me = threading.get_ident()
        if self._first == me or self._served >= self._limit:
            return
        if self._first is None:
            self._first = me
            return
        self._late.add(me)
        kept = len(self._late) / (4 * (len(self._late) + 1))  # by those that wait, if there are no more threads than that
        self._limit = self._share * self.rows * (1 - kept)
        if self._served >= self._limit:
            self._door.set()
        elif not self._door.wait(self.PATIENCE * self.rows):
            self._share *= 0.8
            self._limit = 0
            self._door.set()

    def served(self, begin: int, length: int) -> None:
        """A block; enough of them open the door."""
        self.blocks[begin] = length
        if self._served < self._limit:
            self._served += length
            if self._served >= self._limit:
                self._door.set()


class _Training:
    """One training: its scores and iteration, and the derivatives served from them."""

    def __init__(self, learn: _Learn) -> None:
        self.learn = learn
        self.iteration = learn.iteration
        self.scores = learn.scores.copy()
        self.derivatives = np.empty((2, len(learn.labels))).T  # each derivative's numbers stand together
        self.ready = False
        # CatBoost has two copies of the labels, for the structure of a tree and for its leaves. They stay where they are, so
        # the address of a block tells which rows it has.
        self.passes: list[_Pass] = []
        self.known: dict[int, tuple[int, int, _Pass]] = {}  # blocks by address: their rows, and in which pass
        self.waiting: list[tuple[int, bytes]] = []
        self.lock = threading.Lock()
        self.error: str | None = None

    def serve(self, scores: Array, labels: _Floats, weights: _Floats | None) -> Array:
        """First and second derivatives of a block.

        There are hundreds of blocks an iteration, so one that was found right is known again by its address: then only the
        scores at its ends are compared, except in every 16th iteration, when all of it is.
        """
        if not self.ready:
            self._differentiate()
        address = labels.__array_interface__["data"][0]
        known = self.known.get(address)
        if known is None:
            return self._serve_checked(address, scores, labels, weights)
        begin, end, within = known
        within.enter()
        expected = self.scores
        if (
            end - begin != len(scores)
            or begin in within.blocks
            or scores[0] != expected[begin]
            or scores[-1] != expected[end - 1]
        ):
            return self._serve_checked(address, scores, labels, weights)
        within.served(begin, end - begin)
        return self.derivatives[begin:end]

    def _serve_checked(self, address: int, scores: Array, labels: _Floats, weights: _Floats | None) -> Array:
        learn = self.learn
        within = self._pass(address) or self._new_pass(address, labels)
        begin = (address - within.base) // 4
        end = begin + len(labels)
        if end > len(learn.labels) or _differ(labels, learn.labels[begin:end]):
            raise ValueError(
                f"the labels of {len(labels)} rows are not those of rows {begin} to {end} of the Pool: CatBoost has "
                f"permuted rows, or labels that repeat hide where a block lies (set thread_count=1); {_SETTINGS}"
            )
        if weights is not None and _differ(weights, learn.weights[begin:end]):
            raise ValueError(
                "the weights are not those that the Pool tells, which leaves out group_weight; give weight= instead, one a "
                "row and the same throughout a query"
            )
        if begin in within.blocks:
            raise ValueError(
                f"CatBoost asks twice in iteration {self.iteration} for the gradient of row {begin}; {_SETTINGS}"
            )
        expected = self.scores[begin:end]
        if _differ(scores, expected) and not np.allclose(scores, expected, rtol=1e-9, atol=1e-12):
            raise ValueError(
                f"the scores of rows {begin} to {end} in iteration {self.iteration} are not those that "
                f"{self._scores_are()}; {_SETTINGS}"
            )
        within.served(begin, len(labels))
        self.known[address] = begin, end, within
        return self.derivatives[begin:end]

    def _scores_are(self) -> str:
        if self.iteration > self.learn.iteration:
            return "the eval_metric was shown last"
        return (
            "training starts from: a model to go on from must also be given to CatBoostObjective as init_model=, and a "
            "snapshot cannot be resumed"
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

    def _pass(self, address: int) -> _Pass | None:
        for within in self.passes:
            if 0 <= address - within.base < 4 * within.rows:
                return within
        return None

    def _new_pass(self, address: int, labels: _Floats) -> _Pass:
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
                        f"{_SETTINGS}"
                    )
                self.passes.append(_Pass(lowest - 4 * begin, len(self.learn.labels)))
                within = self._pass(address)
                self.waiting.clear()
        if within is None:
            raise ValueError(f"it cannot be told which rows CatBoost asks for; set thread_count=1, and {_SETTINGS}")
        return within

    def next(self, scores: Array) -> None:
        """The scores after an iteration, which are those of the next."""
        if not self.ready:
            return  # a pool in eval_set with the same labels and queries
        for within in self.passes:
            if (asked := sum(within.blocks.values())) != within.rows:
                raise ValueError(f"CatBoost asked for the gradient of {asked} of {within.rows} rows; {_SETTINGS}")
            within.clear()
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


class CatBoostObjective(CatBoostMetric):
    """A ranking metric, or a loss, as ``loss_function`` of CatBoost; the same object must be its ``eval_metric`` too.

    `CatBoostStochasticRank` takes fewer words. This is for use with ``CatBoost`` itself, with ``boosting_type="Plain"``, one
    leaf iteration (the default) and, if there are categorical features, ``has_time=True``; what would go wrong under other
    settings is noticed in the first iterations, and stops the training with an error that says what to set.

    Under `SGLB` CatBoost's learning_rate must be the one that SGLB was given.

    Parameters
    ----------
    loss
        A metric such as ``"ndcg@10"``, or a loss such as `StochasticRank` or `SGLB`.
    pool, eval_set
        The ``Pool`` to train on and the pool, or list of pools, to evaluate: those given to ``fit``. They have group_id.
    metric
        What is reported and stops early; by default the metric of the loss.
    init_model
        The model that training goes on from: the one given to ``fit``.
    ties, empty
        As in `evaluate`.
    keywords
        With a metric: fields of the loss that `recommended` gives for it, to change.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> pool = catboost.Pool(data.features, data.labels, group_id=data.qid)
    >>> objective = CatBoostObjective("ndcg@10", pool, mu=0.1, seed=3)
    >>> model = catboost.CatBoost({"loss_function": objective, "eval_metric": objective, "boosting_type": "Plain",
    ...     "iterations": 3, "verbose": False, "allow_writing_files": False}).fit(pool)
    >>> model.tree_count_
    3
    """

    def __init__(
        self,
        loss: str | Metric | Loss,
        pool: Any = None,
        eval_set: Any = None,
        *,
        metric: str | Metric | None = None,
        init_model: Any = None,
        ties: Ties = "worst",
        empty: Empty = 0.0,
        **keywords: Any,
    ) -> None:
        self.loss = as_loss(loss, keywords, "catboost")
        pools = [] if pool is None else [pool, *_pools(eval_set)]
        super().__init__(_metric_of(self.loss) if metric is None else metric, pools, ties=ties, empty=empty)
        self._learn = _learn(self.loss, pool, self._known[0], init_model) if pools else None
        self._training = _Training(self._learn) if self._learn else None

    def __repr__(self) -> str:
        return f"CatBoostObjective({self.loss}, metric={str(self.metric)!r}, ties={self.ties!r}, empty={self.empty!r})"

    def __reduce__(self) -> Any:
        return functools.partial(
            CatBoostObjective, self.loss, metric=self.metric, ties=self.ties, empty=self.empty
        ), ()  # fmt: skip

    def __deepcopy__(self, memo: Any) -> CatBoostMetric:
        copy = super().__deepcopy__(memo)
        if isinstance(copy, CatBoostObjective) and self._learn:
            copy._training = _Training(self._learn)
        return copy

    def bind(self, pool: Any, eval_set: Any = None, *, init_model: Any = None) -> CatBoostObjective:
        """The same objective for other pools."""
        return CatBoostObjective(
            self.loss, pool, eval_set, metric=self.metric, init_model=init_model, ties=self.ties, empty=self.empty
        )

    def calc_ders_range(self, approxes: Array, targets: _Floats, weights: _Floats | None) -> Array:
        """First and second derivatives of a block of rows."""
        try:
            return self._bound_training().serve(approxes, targets, weights)
        except ValueError as error:
            raise self._remember(error) from None

    def evaluate(self, approxes: Any, target: _Floats, weight: _Floats | None) -> tuple[float, float]:
        """The metric of the pool that has these labels; the scores of the pool to train on are kept."""
        try:
            training, known = self._bound_training(), self._find(target)
            if known is self._known[0]:
                training.next(approxes[0])
            return known.evaluation(self, weight).mean(approxes[0]), 1.0
        except ValueError as error:
            raise self._remember(error) from None

    def _bound_training(self) -> _Training:
        if self._training is None:
            raise ValueError(
                "CatBoostObjective does not know its data; give it the Pool of fit, or use CatBoostStochasticRank"
            )
        return self._training

    def _remember(self, error: ValueError) -> ValueError:
        """CatBoost raises an error of its own, with this one in its text."""
        if self._training is not None and self._training.error is None:
            self._training.error = str(error)
        return error


def _metric_of(loss: Any) -> Metric:
    while not isinstance(metric := getattr(loss, "metric", None), Metric):
        loss = getattr(loss, "loss", None)
        if loss is None:
            raise ValueError('this loss has no metric of its own; name the one to report, such as metric="ndcg@10"')
    return metric


# What must be set, and what must not.
_SET = {"boosting_type": "Plain", "leaf_estimation_iterations": 1, "model_shrink_rate": 0}
_LEFT = {"metric_period": 1, "langevin": False, "posterior_sampling": False, "task_type": "CPU"}


class CatBoostStochasticRank(catboost.CatBoost):  # type: ignore[misc,name-defined]
    """A ``CatBoost`` model that is trained on a ranking metric: fit it with group_id, and use it as any other.

    It makes the settings that are needed, refuses those that could not be right, and binds the objective to its data.
    Evaluation sets are pools with group_id. Categorical, text and embedding features need ``has_time=True``, which is set:
    then CatBoost takes the rows in the order given for its target statistics, so shuffle queries, and rows within a query,
    if their order tells about the labels.

    Parameters
    ----------
    loss_function
        A metric such as ``"ndcg@10"``, or a loss such as `StochasticRank` or `SGLB`, or a `CatBoostObjective` without data.
    eval_metric
        What is reported and stops early; by default the metric of the loss.
    params
        CatBoost's parameters.

    Examples
    --------
    >>> from stochasticrank_objectives.datasets import make_ranking
    >>> data = make_ranking(20)
    >>> model = CatBoostStochasticRank("ndcg@10", iterations=3, verbose=False, allow_writing_files=False)
    >>> model.fit(data.features, data.labels, group_id=data.qid).predict(data.features).shape == data.labels.shape
    True
    """

    def __init__(
        self,
        loss_function: str | Metric | Loss | CatBoostObjective = "ndcg@10",
        *,
        eval_metric: str | Metric | None = None,
        **params: Any,
    ) -> None:
        if not isinstance(loss_function, CatBoostObjective):
            loss_function = CatBoostObjective(loss_function, metric=eval_metric)
        elif eval_metric is not None:
            raise ValueError("eval_metric: give it to the CatBoostObjective as metric=")
        super().__init__({"loss_function": loss_function, **params})

    def _train(
        self, train_pool: Any, test_pool: Any, params: dict[str, Any], allow_clear_pool: bool, init_model: Any
    ) -> None:
        """What `fit` calls with the pools and parameters that it has made of its arguments."""
        objective = params["loss_function"].bind(train_pool, test_pool, init_model=init_model).__deepcopy__({})
        params = {**_settings(objective.loss, train_pool, params), "loss_function": objective, "eval_metric": objective}
        try:
            super()._train(train_pool, test_pool, params, allow_clear_pool, init_model)
        except catboost.CatBoostError:
            if objective._training.error is not None:
                raise ValueError(objective._training.error) from None
            raise


def _settings(loss: Loss, pool: Any, params: dict[str, Any]) -> dict[str, Any]:
    """CatBoost's parameters with those that are needed, or a ValueError if they contradict."""
    needed: dict[str, Any] = dict(_SET)
    if pool.get_cat_feature_indices() or pool.get_text_feature_indices() or pool.get_embedding_feature_indices():
        needed["has_time"] = True
    for name, value in {**needed, **_LEFT}.items():
        if (given := params.get(name, value)) != value:
            hint = "; for Langevin boosting wrap the loss in SGLB" if name in ("langevin", "model_shrink_rate") else ""
            raise ValueError(f"{name}={given!r} does not work with a StochasticRank objective; set {name}={value!r}{hint}")
    if (rate := getattr(loss, "learning_rate", None)) is not None:
        needed["learning_rate"] = rate
        if not math.isclose(params.get("learning_rate", rate), rate, rel_tol=1e-5):
            raise ValueError(
                f"learning_rate={rate:g} of SGLB is not CatBoost's, {params['learning_rate']:g}; set both to the same"
            )
    return {**params, **needed}
