"""What a process that trains a model together with others needs: its number, and sums over all of them.

XGBoost has a collective of its own for that. LightGBM has one too, but none that Python can call, so there the processes
meet through Dask, which started them.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import hashlib
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stochasticrank_objectives._constants import Array
from stochasticrank_objectives._data import Labels, Reduce
from stochasticrank_objectives.evaluation import Evaluation
from stochasticrank_objectives.losses import BoundLoss, Loss

from ._common import Bindings
from .columns import blank_labels

Result = TypeVar("Result")

_NUMBERS = 3  # at most so many go through one reduction
_FAILED = 1.0
_QUERIES_PER_WORKER = 40  # bits; the place of the worker stands above them
_MEETING = 60.0  # seconds in which all processes must have come
_LOOK = 0.2  # seconds to wait for its place at a time: Dask may miss a Variable that is set just when it begins to wait
_ANSWER = 600.0  # seconds in which the slowest must have computed its part; one that is dead is noticed at once
_LOST = 1.0  # seconds for which a peer's connection may be closed before it counts as lost
_GIVEN_UP = 4.0  # and after which the other connections are closed, too

# ------------------------------------------------------------ the processes of a training


class Collective(abc.ABC):
    """The processes that train one model together, seen from one of them."""

    rank: int
    size: int

    @abc.abstractmethod
    def gather(self, row: Array) -> Array:
        """The rows of all processes, in the order of their numbers. All processes call it, equally often."""

    def reduce(self, values: Array, how: Literal["sum", "max"]) -> Array:
        """The sum or the largest over all processes of each of a few numbers; the same to the last bit in all of them."""
        rows = self._exchange(values)[:, : len(values)]
        result: Array = rows.sum(0) if how == "sum" else rows.max(0)
        return result

    def together(self, work: Callable[[], Result]) -> Result:
        """Do the same work, which may reduce, in all processes: if it fails in one, it fails in all of them."""
        try:
            result = work()
        except _ElsewhereError:
            raise
        except Exception:
            self.gather(np.array([_FAILED, *[0.0] * _NUMBERS]))
            raise
        self._exchange(np.zeros(0))
        return result

    def keys(self, labels: ArrayLike, groups: ArrayLike, weights: ArrayLike | None) -> NDArray[np.uint64]:
        """A number for each query of this process that no query of another process has.

        It depends on which data are together in a process, not on the number of the process, which changes from training to
        training where workers come in no fixed order.
        """
        content = hashlib.sha256()
        for values in (labels, groups, () if weights is None else weights):
            content.update(np.ascontiguousarray(values, np.float64).tobytes())
        own = float(int.from_bytes(content.digest()[:6], "little"))  # 48 bits, which a float64 holds exactly
        contents, ranks = self._exchange(np.array([own]))[:, 0], np.arange(self.size)
        place = int(((contents < own) | ((contents == own) & (ranks < self.rank))).sum())
        return (np.uint64(place) << np.uint64(_QUERIES_PER_WORKER)) + np.arange(np.size(groups), dtype=np.uint64)

    def _exchange(self, values: Array) -> Array:
        row = np.zeros(1 + _NUMBERS)
        row[1 : 1 + len(values)] = values
        rows = self.gather(row)
        if (failed := np.flatnonzero(rows[:, 0])).size:
            raise _ElsewhereError(f"worker {failed[0]} of {self.size} could not use its part of the data; see its own error")
        return rows[:, 1:]


class _ElsewhereError(RuntimeError):
    """Another process failed, and tells why."""


def bind_part(
    loss: Loss,
    labels: Labels,
    groups: NDArray[np.int64],
    weights: ArrayLike | None,
    keys: NDArray[np.uint64] | None,
    collective: Collective | None,
) -> BoundLoss:
    """A loss bound to the queries of this process, which may have none."""
    if collective is None:
        return loss.bind(labels, groups, weights) if keys is None else loss.bind(labels, groups, weights, query_keys=keys)
    if not len(groups):  # a query that nothing can be learnt from, so that this process takes part in the reductions
        labels, groups, weights, keys = blank_labels(labels), np.array([1]), [1e-300], None
    shared: dict[str, Any] = {"reduce": _checked(collective.reduce)} if collective.size > 1 else {}

    def bind() -> BoundLoss:
        own = next(iter(labels.values())) if isinstance(labels, Mapping) else labels
        made = collective.keys(own, groups, weights)  # in all processes, since one without rows does not know of keys
        return loss.bind(labels, groups, weights, query_keys=made if keys is None else keys, **shared)

    return collective.together(bind)


def _checked(reduce: Reduce) -> Reduce:
    def checked(values: Array, how: Literal["sum", "max"]) -> Array:
        if len(values) > _NUMBERS:
            raise ValueError(f"at most {_NUMBERS} numbers are reduced at once, got {len(values)}")
        return reduce(np.asarray(values, np.float64), how)

    return checked


def mean_of_all(part: Evaluation | None, scores: ArrayLike, collective: Collective | None) -> float:
    """The mean of a metric over the queries of all processes; this one may have none."""
    if collective is None:
        assert part is not None
        return part.mean(scores)
    sums = collective.together(lambda: np.array((0.0, 0.0) if part is None else part.sums(scores)))
    value, weight = collective.reduce(sums, "sum")
    return float(value / weight) if weight > 0 else float("nan")


# ------------------------------------------------------------ XGBoost


class XGBoostCollective(Collective):
    """XGBoost's own, as Dask, Ray, or anything else set it up."""

    def __init__(self, xgboost: Any) -> None:
        self._collective = xgboost.collective
        self.rank, self.size = self._collective.get_rank(), self._collective.get_world_size()

    def gather(self, row: Array) -> Array:
        """The rows of all processes."""
        rows = np.zeros((self.size, len(row)))
        rows[self.rank] = row
        gathered = self._collective.allreduce(rows, self._collective.Op.SUM)
        return np.asarray(gathered).reshape(rows.shape)


def xgboost_collective(xgboost: Any) -> XGBoostCollective | None:
    """The processes of the training that this one belongs to; None if it is alone."""
    return XGBoostCollective(xgboost) if xgboost.collective.is_distributed() else None


# Of query ids, a DMatrix keeps only where queries begin. Dask's has no weights of queries, either. But it carries the bounds
# of labels of survival models, row by row and through every repartitioning, in float32. So keys and weights of
# queries travel there: a key in pieces of 24 bits, which float32 holds exactly, on the first rows of its query.
_PIECE = 24


def keys_to_rows(keys: NDArray[np.uint64], sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """Keys of queries as a float32 per row."""
    at = np.minimum(np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes), 2).astype(np.uint64)
    pieces: NDArray[np.uint64] = (np.repeat(keys, sizes) >> (at * np.uint64(_PIECE))) & np.uint64(2**_PIECE - 1)
    return pieces.astype(np.float32)


def keys_from_rows(rows: NDArray[np.float32], sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Back: all 64 bits of the keys of queries of three rows or more, 48 of two, 24 of one."""
    begin = np.cumsum(sizes) - sizes
    keys = np.zeros(len(sizes), np.uint64)
    for piece in range(3):
        has = sizes > piece
        keys[has] |= rows[begin[has] + piece].astype(np.uint64) << np.uint64(piece * _PIECE)
    return keys


# ------------------------------------------------------------ LightGBM


class Meeting(Collective):
    """Processes of Dask: all send their numbers to the first, which sends all of them to all."""

    def __init__(self, rank: int, size: int, name: str) -> None:
        from distributed import Variable, get_client, get_worker
        from distributed.comm import get_address_host

        self.rank, self.size = rank, size
        self._peers: list[socket.socket] = []
        end = time.monotonic() + _MEETING
        place = Variable(name, get_client())
        if rank == 0:
            token = secrets.token_bytes(16)
            with socket.create_server((get_address_host(get_worker().address), 0), backlog=size) as server:
                place.set([*server.getsockname()[:2], token.hex()])
                self._accept(server, token, end)
            place.delete()
        else:
            self._peers = [self._join(place, end)]

    def _accept(self, server: socket.socket, token: bytes, end: float) -> None:
        came: dict[int, socket.socket] = {}
        while len(came) < self.size - 1:
            server.settimeout(max(end - time.monotonic(), 0.01))
            try:
                peer, _ = server.accept()
                peer.settimeout(5.0)
                hello = _receive(peer, 20)
            except (TimeoutError, ConnectionError) as error:
                if time.monotonic() < end:
                    continue
                missing = sorted(set(range(1, self.size)) - set(came))
                raise TimeoutError(
                    f"workers {missing} of {self.size} did not come within {_MEETING:g} seconds; with LightGBM, every "
                    "worker must have a part of every evaluation set, or have none of ours to report"
                ) from error
            if hello[:16] == token:
                came[int.from_bytes(hello[16:], "little")] = _tuned(peer)
        self._peers = [came[rank] for rank in sorted(came)]

    def _join(self, place: Any, end: float) -> socket.socket:
        while True:
            try:
                host, port, token = place.get(timeout=_LOOK)
                peer = socket.create_connection((host, port), timeout=5.0)
                peer.sendall(bytes.fromhex(token) + self.rank.to_bytes(4, "little"))
                return _tuned(peer)
            except (OSError, asyncio.TimeoutError) as error:  # what an earlier training has left, or a timeout
                if time.monotonic() >= end:
                    raise TimeoutError(
                        f"worker 0 of {self.size} could not be reached within {_MEETING:g} seconds"
                    ) from error
                time.sleep(0.05)

    def gather(self, row: Array) -> Array:
        """The rows of all processes."""
        try:
            if self.rank:
                self._peers[0].sendall(row.tobytes())
                whole = _receive(self._peers[0], self.size * row.nbytes)
            else:
                whole = row.tobytes() + b"".join(_receive(peer, row.nbytes) for peer in self._peers)
                for peer in self._peers:
                    peer.sendall(whole)
        except OSError as error:
            self.close()
            raise RuntimeError("another worker of this training was lost, or failed; see its own error") from error
        return np.frombuffer(whole).reshape(self.size, -1)

    def close(self) -> None:
        """Leave; the others notice."""
        for peer in self._peers:
            peer.close()

    def __del__(self) -> None:
        self.close()


class Unconnected(Collective):
    """Processes that cannot meet, because Dask did not start them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def gather(self, row: Array) -> Array:
        """Refused: there is no way to reach the others."""
        raise RuntimeError(
            "this needs sums over all workers, which LightGBM gives Python no way to compute; train with Dask, by which "
            "the workers can meet, or with XGBoost"
        )

    def together(self, work: Callable[[], Result]) -> Result:
        """Work by itself."""
        return work()


def _receive(peer: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = peer.recv(length - len(data))
        if not part:
            raise ConnectionError("the connection was closed")
        data += part
    return data


def _tuned(peer: socket.socket) -> socket.socket:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.settimeout(_ANSWER)
    return peer


_meetings: Bindings[Collective | None] = Bindings()
_boosters: weakref.WeakSet[Any] = weakref.WeakSet()


def lightgbm_collective(booster: Any, parameter: Callable[..., Any]) -> Collective | None:
    """The processes of the training of this Booster; None if it is alone."""
    return None if booster is None else _meetings.get((booster,), lambda: _meet(booster, parameter))


def _meet(booster: Any, parameter: Callable[..., Any]) -> Collective | None:
    size = int(parameter(booster.params, 1, "num_machines", "num_machine"))
    if size < 2:
        return None
    machines = str(parameter(booster.params, "", "machines", "workers", "nodes")).split(",")
    port = int(parameter(booster.params, 12400, "local_listen_port", "local_port", "port"))
    try:
        from distributed import get_worker
        from distributed.comm import get_address_host

        host: str | None = get_address_host(get_worker().address)
    except (ImportError, ValueError):  # no task of Dask
        host = None
    here = [at for at, machine in enumerate(machines) if machine.rpartition(":")[2] == str(port)]
    if len(here) > 1 and host is not None:
        here = [at for at in here if machines[at].rpartition(":")[0] == host]
    if len(here) != 1 or len(machines) != size:
        raise ValueError(f"cannot tell which of the machines {','.join(machines)} this one is: port {port} on {host}")
    if host is None:
        return Unconnected(here[0], size)
    # Deleting a Booster closes LightGBM's connections, and a process has only one set of them. A Booster of a training that
    # failed, kept until now by its traceback, would close those of this training.
    for old in _boosters:
        _forget_network(old)
    _boosters.add(booster)
    guard(weakref.ref(booster), {int(machine.rpartition(":")[2]) for machine in machines})
    name = hashlib.sha256(",".join(machines).encode()).hexdigest()[:16]
    meeting = Meeting(here[0], size, f"stochasticrank-{name}")
    sets = meeting.gather(np.array([float(len(booster.name_valid_sets))]))[:, 0]
    if sets.min() != sets.max():
        raise ValueError(
            f"workers have {', '.join(f'{number:g}' for number in sets)} evaluation sets: LightGBM leaves out those of "
            "which a worker has no part; give each as many partitions as the training data, or use DaskLightGBMRanker"
        )
    return meeting


def _forget_network(booster: Any) -> None:
    booster._network = booster.network = False  # it has one or the other, depending on the version


@contextlib.contextmanager
def no_one_left_waiting(booster: Any) -> Iterator[None]:
    """If this process fails, LightGBM in the others waits for hours: close its connections, so that they fail, too."""
    try:
        yield
    except BaseException:
        if booster is not None and int(booster.params.get("num_machines") or 1) > 1:
            if isinstance(meeting := _meetings.get((booster,), lambda: None), Meeting):
                meeting.close()
            booster.free_network()
            _forget_network(booster)
        raise


def guard(booster: weakref.ref[Any], ports: set[int]) -> None:
    """Watch LightGBM's connections while a Booster lives.

    When a peer dies, LightGBM reads from its closed connection again and again, for ever. A thread here replaces such a
    connection by something that cannot be read from, so that LightGBM gives up with an error.
    """
    if os.name == "posix":
        threading.Thread(target=_guard, args=(booster, ports), name="stochasticrank-guard", daemon=True).start()


def _guard(booster: weakref.ref[Any], ports: set[int]) -> None:
    noticed = None
    # A connection that is reset is in no table of the system any more, but LightGBM still reads from it: remember them.
    known = {number: _identity(number) for number in _connections(ports)}
    while booster() is not None:
        connections = [number for number, identity in known.items() if identity and _identity(number) == identity]
        if not connections:
            return  # freed: training is over
        lost = [number for number in connections if _is_closed(number)]
        if lost and noticed is None:
            noticed = time.monotonic()
        elapsed = 0.0 if noticed is None else time.monotonic() - noticed
        if elapsed >= _LOST:
            _break(connections if elapsed >= _GIVEN_UP else lost)
        time.sleep(_LOST / 4)


def _connections(ports: set[int]) -> list[int]:
    """File descriptors of this process's connections with these ports at either end."""
    import psutil

    process = psutil.Process()
    find = getattr(process, "net_connections", None) or process.connections
    return [one.fd for one in find("tcp") if one.raddr and {one.laddr.port, one.raddr.port} & ports and one.fd >= 0]


def _identity(number: int) -> int | None:
    """What tells a connection from another that later gets the same descriptor."""
    try:
        return os.fstat(number).st_ino
    except OSError:
        return None


def _is_closed(number: int) -> bool:
    """Whether a peer has closed its end, and nothing is left to be read."""
    try:
        with socket.socket(fileno=os.dup(number)) as copy:
            return copy.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:  # reset, or no socket any more
        return True


def _break(numbers: list[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        for number in numbers:
            with contextlib.suppress(OSError):
                with socket.socket(fileno=os.dup(number)) as copy, contextlib.suppress(OSError):
                    copy.shutdown(socket.SHUT_RDWR)  # wakes those who wait for it
                os.dup2(nothing, number)
    finally:
        os.close(nothing)
