"""Partitions of dask collections: which queries they have, whether any is cut, and how to make them whole."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ._common import require

dask = require("dask")
pd = require("pandas")
dd = require("dask.dataframe")
da = require("dask.array")

# ------------------------------------------------------------ queries of one partition


@dataclasses.dataclass(frozen=True)
class Part:
    """The queries of one partition: keys in the order in which they begin, and how many rows each has."""

    keys: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    together: bool  # whether the rows of each query stand together

    @property
    def rows(self) -> int:
        return int(self.sizes.sum())


def query_keys(qid: Any) -> NDArray[np.uint64]:
    """Query ids as 64-bit keys: whole numbers as they are, anything else by its hash, which is the same in every process."""
    if isinstance(getattr(qid, "dtype", None), pd.CategoricalDtype):  # codes may differ between partitions
        qid = qid.astype(qid.dtype.categories.dtype) if hasattr(qid, "astype") else qid
    values = np.asarray(qid)
    if values.ndim != 1:
        raise ValueError(f"qid must have one dimension, got shape {values.shape}")
    if values.dtype.kind in "iub":
        return values.astype(np.uint64)
    if pd.isna(values).any():
        raise ValueError("qid is missing in some rows; every row must belong to a query")
    if values.dtype.kind == "f" and (values == np.floor(values)).all() and (np.abs(values) < 2**53).all():
        return values.astype(np.int64).astype(np.uint64)
    hashed: NDArray[np.uint64] = pd.util.hash_array(values if values.dtype.kind in "fM" else values.astype(object))
    return hashed


def _look(qid: Any) -> Part:
    codes, keys = pd.factorize(query_keys(qid))
    return Part(keys, np.bincount(codes, minlength=len(keys)), bool((np.diff(codes) >= 0).all()))


def _blocks(collection: Any) -> list[Any]:
    """The partitions of a collection, as delayed objects, optimised as one graph."""
    if isinstance(collection, da.Array):
        if collection.ndim > 1 and len(collection.chunks[1]) > 1:
            raise ValueError("an array must be chunked by rows only: rechunk({1: -1})")
        return list(collection.to_delayed().ravel())
    if not isinstance(collection, (dd.DataFrame, dd.Series)):
        raise ValueError(f"expected a dask array, DataFrame or Series, got {type(collection).__name__}")
    return list(collection.to_delayed())


def check_same_partitions(**collections: Any) -> None:
    """Refuse collections whose partitions do not go together; those that are None are left out."""
    given = {name: one for name, one in collections.items() if one is not None}
    for name, one in given.items():
        if not hasattr(one, "npartitions"):
            raise ValueError(f"{name} must be a dask array, DataFrame or Series, got {type(one).__name__}")
    if len({one.npartitions for one in given.values()}) > 1:
        counts = ", ".join(f"{name} {one.npartitions}" for name, one in given.items())
        raise ValueError(f"all must have the same partitions, but there are of {counts}; rechunk or repartition them alike")


def look(qid: Any) -> list[Part]:
    """The queries of every partition; computes the query ids."""
    return list(dask.compute(*(dask.delayed(_look)(block) for block in _blocks(qid))))


# ------------------------------------------------------------ queries that are cut


def check_partitions(qid: Any) -> None:
    """Refuse query ids if one is in more than one partition: each worker would treat its part as a whole query.

    Parameters
    ----------
    qid
        The query id of each row: a dask array or Series. It is computed, so persist it first.
    """
    check_parts(look(qid))


def check_parts(parts: Sequence[Part]) -> None:
    """Refuse what `check_partitions` does."""
    for at, part in enumerate(parts):
        if not part.together:
            raise ValueError(
                f"the rows of a query do not stand together in partition {at}; sort by query id, or use partition_by_query"
            )
    homes = _homes(parts)
    cut = homes[homes.duplicated("key", keep=False)]
    if len(cut):
        first = cut["key"].iloc[0]
        where = cut.loc[cut["key"] == first, "part"].tolist()
        raise ValueError(
            f"{cut['key'].nunique()} queries are cut by borders of partitions; for example, the query with key {first} has "
            f"rows in partitions {', '.join(map(str, where))}, and would be trained on as {len(where)} queries. Move rows "
            "so that queries are whole: partition_by_query(...) of stochasticrank_objectives.adapters.dask"
        )


def _homes(parts: Sequence[Part]) -> Any:
    """A table of keys, partitions and rows: all of them, or, if no two partitions can share a query, none."""
    filled = [(part.keys.min(), part.keys.max()) for part in parts if len(part.keys)]
    filled.sort()
    apart = all(one[1] < other[0] for one, other in itertools.pairwise(filled))
    keep = [] if apart else list(enumerate(parts))
    numbers = [np.full(len(part.keys), at) for at, part in keep]
    return pd.DataFrame(
        {
            "key": np.concatenate([np.zeros(0, np.uint64), *(part.keys for _, part in keep)]),
            "part": np.concatenate([np.zeros(0, np.int64), *numbers]),
            "rows": np.concatenate([np.zeros(0, np.int64), *(part.sizes for _, part in keep)]),
        }
    )


# ------------------------------------------------------------ the remedy


@overload
def partition_by_query(frame: Any, /, *, qid: str, npartitions: int | None = None) -> Any: ...
@overload
def partition_by_query(*collections: Any, qid: Any, npartitions: int | None = None) -> tuple[Any, ...]: ...
def partition_by_query(*collections: Any, qid: Any, npartitions: int | None = None) -> Any:
    """Move rows between partitions so that every query is whole and its rows stand together; as few rows as possible.

    A query stays where most of its rows are. Partitions without a cut query are passed on as they are. Rows of a query keep
    their order, so training afterwards does not depend on where the borders were.

    Parameters
    ----------
    collections
        dask arrays (chunked by rows), DataFrames or Series with the same partitions.
    qid
        The query id of each row, as one more such collection; or, with one DataFrame, the name of its column. It is
        computed here, so persist what it is made from first.
    npartitions
        With a number: that many partitions of about equal size, queries in the order in which they first appear. This
        moves more rows.

    Returns
    -------
    DataFrame or tuple
        The DataFrame; or the collections, and the query ids last.

    Examples
    --------
    >>> import dask.array as da
    >>> qid = da.from_array(np.array([0, 0, 0, 1, 1, 1, 1, 2]), chunks=4)
    >>> rows, qid = partition_by_query(da.arange(8, chunks=4), qid=qid)
    >>> qid.chunks, [block.compute().tolist() for block in rows.blocks]
    (((3, 5),), [[0, 1, 2], [3, 4, 5, 6, 7]])
    """
    if isinstance(qid, str):
        if len(collections) != 1 or not isinstance(collections[0], dd.DataFrame):
            raise ValueError(f"qid={qid!r} is the name of a column of one dask DataFrame; otherwise give a collection")
        (ids, everything) = collections[0][qid], [*collections]
    else:
        (ids, everything) = qid, [*collections, qid]
    counts = [collection.npartitions for collection in everything]
    if len(set(counts)) != 1:
        raise ValueError(f"all collections must have the same partitions, got {counts} of them")
    blocks = _blocks(ids)
    parts = look(ids)
    homes = _move_little(parts) if npartitions is None else _spread(parts, npartitions)
    moved = [_rebuild(collection, blocks, parts, homes, npartitions or len(parts)) for collection in everything]
    return moved[0] if isinstance(qid, str) else tuple(moved)


def _move_little(parts: Sequence[Part]) -> list[NDArray[np.int64]]:
    """For each partition, where each of its queries goes: where most of its rows are; in a tie, to the first."""
    homes = _homes(parts)
    shared = homes[homes.duplicated("key", keep=False)].sort_values(["rows", "part"], ascending=[False, True])
    best = shared.drop_duplicates("key").set_index("key")["part"]
    where = []
    for at, part in enumerate(parts):
        found = best.reindex(part.keys)
        where.append(found.fillna(at).to_numpy(np.int64))
    return where


def _spread(parts: Sequence[Part], npartitions: int) -> list[NDArray[np.int64]]:
    """The same for a number of partitions of about the same size."""
    table = pd.DataFrame({"key": np.concatenate([p.keys for p in parts]), "rows": np.concatenate([p.sizes for p in parts])})
    rows = table.groupby("key", sort=False)["rows"].sum()
    if npartitions > len(rows):
        raise ValueError(f"npartitions={npartitions}, but there are only {len(rows)} queries")
    middle = rows.cumsum() - rows / 2
    home = np.minimum((middle * npartitions / rows.sum()).to_numpy(np.int64), npartitions - 1)
    # No partition may be empty: each begins, at the latest, when as many queries are left as partitions.
    place = np.arange(len(rows))
    home = np.maximum(np.minimum(home, place), npartitions - len(rows) + place)
    used = np.unique(home)
    if len(used) < npartitions:  # a huge query spans several
        home = place * npartitions // len(rows)
    target = pd.Series(home, index=rows.index)
    return [target.reindex(part.keys).to_numpy(np.int64) for part in parts]


def _rebuild(
    collection: Any, ids: list[Any], parts: Sequence[Part], homes: list[NDArray[np.int64]], npartitions: int
) -> Any:
    """A collection with every query in its new place."""
    blocks, take, join = _blocks(collection), dask.delayed(_take, pure=True), dask.delayed(_join, pure=True)
    rebuilt, sizes = [], []
    for to in range(npartitions):
        sources = [at for at, home in enumerate(homes) if (home == to).any()]
        whole = [at for at in sources if (homes[at] == to).all()]
        sizes.append(int(sum(parts[at].sizes[homes[at] == to].sum() for at in sources)))
        if sources == whole == [to] and parts[to].together:
            rebuilt.append(blocks[to])
            continue
        pieces = [take(blocks[at], ids[at], None if at in whole else parts[at].keys[homes[at] == to]) for at in sources]
        rebuilt.append(join(pieces, blocks[0]))
    if isinstance(collection, da.Array):
        shapes = [(size, *collection.shape[1:]) for size in sizes]
        return da.concatenate(
            [da.from_delayed(one, shape, meta=collection._meta) for one, shape in zip(rebuilt, shapes, strict=True)]
        )
    # Not from_delayed: columns of its result, delayed again, get keys that collide (Dask 2026.8).
    graph = {key: task for one in rebuilt for key, task in dict(one.__dask_graph__()).items()}
    borders = (None,) * (npartitions + 1)
    return dd.from_graph(graph, collection._meta, borders, [one.key for one in rebuilt], "partition-by-query")


def _take(block: Any, qid: Any, keys: NDArray[np.uint64] | None) -> tuple[Any, NDArray[np.uint64]]:
    """Rows of some queries, or of all, with the keys of the rows."""
    of_rows = query_keys(qid)
    which = slice(None) if keys is None else np.isin(of_rows, keys)
    return block[which], of_rows[which]


def _join(pieces: list[tuple[Any, NDArray[np.uint64]]], like: Any) -> Any:
    """Pieces one after the other, then the rows of each query together, in the order in which queries begin."""
    if not pieces:
        return like[:0]
    keys = np.concatenate([piece[1] for piece in pieces])
    values = [piece[0] for piece in pieces]
    whole = pd.concat(values) if hasattr(values[0], "iloc") else _stack(values)
    codes = pd.factorize(keys)[0]
    if (np.diff(codes) >= 0).all():
        return whole
    order = np.argsort(codes, kind="stable")
    return whole.iloc[order] if hasattr(whole, "iloc") else whole[order]


def _stack(values: list[Any]) -> Any:
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    from scipy import sparse

    return sparse.vstack(values, format="csr")


# ------------------------------------------------------------ metrics of predictions


def mean_metric(evaluation: Any, scores: Any, labels: Any, qid: Any, weights: Any = None) -> float:
    """The mean over all queries; `evaluation(labels, qid, weights)` binds those of one partition."""
    check_partitions(qid)
    columns = [_blocks(scores), _blocks(labels), _blocks(qid), *([] if weights is None else [_blocks(weights)])]
    sums = dask.compute(*(dask.delayed(_sums)(evaluation, *blocks) for blocks in zip(*columns, strict=True)))
    value, weight = np.sum(sums, axis=0)
    return float(value / weight) if weight > 0 else float("nan")


def _sums(evaluation: Any, scores: Any, labels: Any, qid: Any, weights: Any = None) -> tuple[float, float]:
    if not len(labels):
        return 0.0, 0.0
    sums: tuple[float, float] = evaluation(np.asarray(labels), query_keys(qid), weights).sums(np.asarray(scores))
    return sums
