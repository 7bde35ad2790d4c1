"""Clicks are rarer further down: how often each position is looked at, and labels that are corrected for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._checks import check_number
from ._constants import Array, Integers
from ._data import as_vector, check_labels, first

_ROUNDS, _PRECISION = 10_000, 1e-9


def _check_positions(positions: ArrayLike, rows: int) -> Integers:
    """Positions as places in an array: whole numbers from 1 on, less 1."""
    array = as_vector("positions", positions, rows)
    if (wrong := ~((array >= 1) & (array == np.floor(array)) & (array < 2**31))).any():
        at = first(wrong)
        hint = "; add 1 to positions that count from 0" if array[at] == 0 else ""
        raise ValueError(f"positions[{at}] = {array[at]:g} but positions are whole numbers, and the top is 1{hint}")
    return array.astype(np.int64) - 1


def debias(labels: ArrayLike, positions: ArrayLike, propensities: ArrayLike, *, clip: float | None = 10.0) -> Array:
    """Clicks, corrected for the positions at which they were made: labels to train and to evaluate on.

    A document is clicked if it is looked at and found relevant. How likely it is to be looked at, its propensity, depends on
    the position at which it was shown. Here a click counts one over that: ``label / propensity``. Its expectation is
    then the relevance, whatever the position was. So any metric that is linear in the labels, such as
    ``dcg@10:gain=linear``, has the expectation that it would have on labels of relevance, and so has its gradient
    (`StochasticRank` with ``mu=0``). Metrics that divide by an ideal, such as NDCG, or that are not linear, such as MRR, are
    corrected only in part.

    Parameters
    ----------
    labels
        Clicks: 0 or 1 per row, or a number that is 0 without a click.
    positions
        Where each row was shown; 1 is the top.
    propensities
        How likely each position is to be looked at, from the top on, up to a factor that is the same for all: known, or
        from `estimate_propensities`.
    clip
        The largest factor for a click; None for no limit. Where few look, a click counts much, and a few such clicks may
        rule the training. A limit makes the labels less noisy, and labels at the positions beyond it too small.

    Examples
    --------
    >>> debias(labels=[1, 0, 1, 1], positions=[1, 2, 2, 3], propensities=[1.0, 0.5, 0.25]).tolist()
    [1.0, 0.0, 2.0, 4.0]
    """
    values = check_labels(labels)
    at = _check_positions(positions, len(values))
    known = as_vector("propensities", propensities)
    if not len(known) or (wrong := ~(np.isfinite(known) & (known > 0))).any():
        where = f"[{first(wrong)}] = {known[first(wrong)]:g}" if len(known) else " is empty"
        raise ValueError(f"propensities{where} but each is finite and above 0; the first is that of position 1")
    if (wrong := at >= len(known)).any():
        row = first(wrong)
        raise ValueError(
            f"positions[{row}] = {at[row] + 1} but there are propensities of positions 1 to {len(known)} only; give that of "
            "every position, or leave out rows further down"
        )
    factors = 1.0 / known
    if clip is not None:
        factors = np.minimum(factors, check_number("clip", clip, 0, open_low=True, hint="use None for no limit"))
    corrected: Array = values * factors[at]
    return corrected


def estimate_propensities(positions: ArrayLike, clicks: ArrayLike, *, items: ArrayLike | None = None) -> Array:
    """How likely each position is to be looked at, relative to the top: from a log of what was shown where, and clicked.

    The model: a click on item i at position k has the probability ``propensity[k] * relevance[i]``. Positions are compared
    only within an item that was shown at several of them: because its place was drawn at random, because neighbours
    were swapped now and then, or because several rankers have made the log. So it does not matter that better items stand
    higher. The estimate solves, for each position k,

    ``clicks at k = sum over items of (all clicks on i) * shown[i, k] * propensity[k] / sum_l shown[i, l] * propensity[l]``

    which is the likelihood equation of a Poisson model with an effect per item. It needs the model to hold for the mean
    alone, and many items, each of which may have been shown only a few times. (Agarwal et al., "Estimating position bias
    without intrusive interventions", WSDM 2019, compare positions in the same way.)

    Parameters
    ----------
    positions
        Where each row was shown; 1 is the top.
    clicks
        How often it was clicked: 0 or 1, or counts.
    items
        What was shown: an id per row, a number or a text, that stands for a document in a query. None means that positions
        were drawn at random; then the rates of clicks per position are compared.

    Returns
    -------
    propensities
        One per position from the top on; the first is 1.

    Examples
    --------
    >>> estimate_propensities(positions=[1, 1, 2, 2], clicks=[1, 1, 1, 0]).tolist()
    [1.0, 0.5]
    """
    values = as_vector("clicks", clicks)
    if not len(values) or (wrong := ~(np.isfinite(values) & (values >= 0))).any():
        where = f"[{first(wrong)}] = {values[first(wrong)]:g}" if len(values) else " is empty"
        raise ValueError(f"clicks{where} but there must be at least one row, with a finite number that is not negative")
    at = _check_positions(positions, len(values))
    item = _as_numbers(items, len(values))
    count = int(at.max()) + 1
    if not (shown_at := np.bincount(at, minlength=count)).all():
        raise ValueError(f"nothing was shown at position {first(shown_at == 0) + 1}; positions count from 1 without a gap")
    # A pair is an item at a position.
    pairs, pair_of = np.unique(item * count + at, return_inverse=True)
    of_item, of_position = pairs // count, pairs % count
    shown, clicked = np.bincount(pair_of).astype(np.float64), np.bincount(pair_of, values)
    items_clicks = np.bincount(of_item, clicked)
    # Items at one position only, or without clicks, say nothing.
    kept = (np.bincount(of_item)[of_item] > 1) & (items_clicks[of_item] > 0) if count > 1 else np.ones(len(pairs), bool)
    of_item, of_position, shown, clicked = of_item[kept], of_position[kept], shown[kept], clicked[kept]
    _check_comparable(of_item, of_position, clicked, count)
    per_position = np.bincount(of_position, clicked, count)
    found = np.ones(count)
    for _ in range(_ROUNDS):
        expected = np.bincount(of_item, shown * found[of_position], len(items_clicks))
        share = items_clicks[of_item] * shown / expected[of_item]
        update = per_position / np.bincount(of_position, share, count)
        update /= update[0]
        done = np.abs(np.log(update / found)).max() < _PRECISION
        found = update
        if done:
            return found
    raise ValueError(
        f"propensities have not settled after {_ROUNDS} rounds: some positions have hardly an item in common; give a log in "
        "which more items were shown at several positions"
    )


def _as_numbers(items: ArrayLike | None, rows: int) -> Integers:
    if items is None:
        return np.zeros(rows, np.int64)
    ids = np.asarray(items)
    if ids.ndim != 1 or len(ids) != rows:
        raise ValueError(f"items must have one id per row, {rows} in all, got shape {ids.shape}")
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)


def _check_comparable(of_item: Integers, of_position: Integers, clicked: Array, count: int) -> None:
    """Every position can be compared with the top both ways, or the estimate would be 0 or infinite.

    Position k is compared with l by an item that was shown at both, and clicked at k.
    """
    hit = clicked > 0

    def reach(begin: NDArray[np.bool_], end: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Positions reached from the top by steps through items, from pairs of one kind to pairs of another."""
        reached = np.zeros(count, bool)
        reached[0] = True
        while True:
            through = np.zeros(int(of_item.max(initial=0)) + 1, bool)
            through[of_item[begin & reached[of_position]]] = True
            further = reached.copy()
            further[of_position[end & through[of_item]]] = True
            if (further == reached).all():
                return reached
            reached = further

    every = np.ones(len(hit), bool)
    lost = np.flatnonzero(~(reach(hit, every) & reach(every, hit))) + 1
    if len(lost):
        named = ", ".join(map(str, lost[:10])) + (" and others" if len(lost) > 10 else "")
        raise ValueError(
            f"positions {named} cannot be compared with position 1: no clicked item was shown at both, directly or by way "
            "of other positions; give a longer log, leave out the last positions, or see what items= should be"
        )
