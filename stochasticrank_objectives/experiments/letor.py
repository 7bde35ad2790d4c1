"""Learning-to-rank data from files in the svmlight format of LETOR, MSLR, Yahoo and Istella, and their folders of folds.

A line is ``label qid:ID index:value ... # comment``. Files may be gzipped; a feature that a line leaves out is 0.
Features are held as float32, half the memory of float64 and what XGBoost and CatBoost keep anyway; labels are float64.
A file is read twice, first to learn its shape, then to fill a matrix of that shape, so that memory peaks at the
matrix and one block of text. What was read is kept in a cache folder, from which it is mapped into memory the next time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import importlib
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stochasticrank_objectives._kernels.svmlight import (
    AT,
    CHANGED,
    FIRST,
    HARD,
    HIGHEST,
    HIGHEST_AT,
    LINES,
    MIXED_AT,
    NEWLINE,
    POWERS,
    PROBLEM,
    PROBLEMS,
    QUERIES,
    ROWS,
    RUN,
    ZERO_AT,
    Block,
    Found,
    Rows,
    parse_block,
    scan_block,
)
from stochasticrank_objectives.datasets import RankingData

CACHE_SWITCH = "STOCHASTICRANK_OBJECTIVES_CACHE"  # an environment variable: 0, off, no or false disables the cache

_BLOCK = 1 << 22  # bytes of text held at once
_LONGEST_LINE = 1 << 28
_MODEST = 1 << 28  # a matrix of up to so many bytes may be as empty as it likes
_Path = str | os.PathLike[str]
_Floats32 = NDArray[np.float32]

_LINE = "label qid:ID index:value ..."

_KINDS = {  # files of other kinds, by the bytes that they begin with
    b"PK\x03\x04": "a zip archive",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x93NUMPY": "a file of a numpy array",
    b"\x89HDF": "an HDF5 file",
}

# ------------------------------------------------------------ text


class OutsideColumnsError(ValueError):
    """A file has an index that the columns which were asked for leave out."""

    def __init__(self, message: str, line: int, index: int) -> None:
        super().__init__(message)
        self.line = line
        self.index = index


class _Source(NamedTuple):
    """A file as it is now, and what messages call it if that is not its path."""

    path: str
    size: int
    modified: int
    name: str | None = None

    @classmethod
    def of(cls, path: _Path, name: str | None = None) -> _Source:
        if os.path.isdir(path):
            raise ValueError(f"{os.fspath(path)} is a folder; give a file of it, or give the folder to load_folds")
        status = os.stat(path)
        return cls(os.path.abspath(path), status.st_size, status.st_mtime_ns, name)

    def refuse(self, line: int, reason: str) -> ValueError:
        return ValueError(self._at(line, reason))

    def outside(self, line: int, index: int, reason: str) -> OutsideColumnsError:
        return OutsideColumnsError(self._at(line, reason), line, index)

    def _at(self, line: int, reason: str) -> str:
        return f"{self.name or self.path}, line {line}: {reason}"


class _Extent(NamedTuple):
    """The shape of a file, and the lines that tell it; line 0 is none."""

    rows: int
    zero_line: int  # the first with index 0
    highest: int  # index, -1 without any
    highest_line: int
    size: int  # bytes of text


@contextlib.contextmanager
def _progress(title: str, total: int, shown: bool | None) -> Iterator[Any]:
    """A bar if one is wanted and tqdm is there: what to call with the position in the file."""
    tqdm: Any = None
    if shown or (shown is None and sys.stderr is not None and sys.stderr.isatty()):
        with contextlib.suppress(ImportError):
            tqdm = importlib.import_module("tqdm").tqdm
    if tqdm is None:
        yield lambda position: None
        return
    with tqdm(desc=title, total=total, unit="B", unit_scale=True, leave=False) as bar:
        yield lambda position: bar.update(position - bar.n)


def _blocks(source: _Source, title: str, shown: bool | None, state: NDArray[np.int64]) -> Iterator[tuple[bytearray, int]]:
    """Blocks of whole lines, each a buffer and how much of it is to be read; `state` counts the lines."""
    buffer = bytearray(_BLOCK)
    filled = 0
    start = True
    with open(source.path, "rb") as raw, _progress(f"{title} {os.path.basename(source.path)}", source.size, shown) as show:
        magic = raw.read(8)  # the name may say anything
        zipped = magic.startswith(b"\x1f\x8b")
        if kind := next((kind for begin, kind in _KINDS.items() if magic.startswith(begin)), None):
            raise source.refuse(1, f"this is {kind}, not svmlight text, plain or gzipped")
        raw.seek(0)
        stream: Any = gzip.GzipFile(fileobj=raw) if zipped else raw
        while True:
            try:
                count = stream.readinto(memoryview(buffer)[filled:-1])
            except EOFError:
                raise source.refuse(
                    int(state[LINES]) + 1,
                    "the gzip file is truncated: it ends here or soon after, before its data do; copy or download it again",
                ) from None
            except (zlib.error, gzip.BadGzipFile) as error:
                raise source.refuse(int(state[LINES]) + 1, f"the gzip data is damaged here or soon after: {error}") from None
            show(raw.tell())
            filled += count
            if start and filled >= 3 and buffer.startswith(b"\xef\xbb\xbf"):  # a byte order mark
                del buffer[:3]
                buffer += bytes(3)
                filled -= 3
            start = start and filled < 3
            if not count:
                if filled:
                    buffer[filled] = NEWLINE
                    yield buffer, filled + 1
                return
            end = buffer.rfind(b"\n", 0, filled) + 1
            if end:
                yield buffer, end
                buffer[: filled - end] = buffer[end:filled]
                filled -= end
            elif filled == len(buffer) - 1:
                if filled > _LONGEST_LINE:
                    raise source.refuse(int(state[LINES]) + 1, f"it is longer than {_LONGEST_LINE} bytes; is this text?")
                buffer = buffer + bytes(len(buffer))


def _other_kind(buffer: bytearray, size: int) -> str | None:
    """What text is that does not look like svmlight in its first line with any data; None if it does, more or less."""
    lines = (line.strip() for line in bytes(buffer[:size]).split(b"\n", 100))
    line = next((line for line in lines if line and not line.startswith(b"#")), b"")
    if not line or b"qid:" in line:
        return None
    if line[:1] in b"{[":
        return "this looks like a JSON file"
    for separator, name in ((b",", "commas"), (b";", "semicolons"), (b"\t", "tabs")):
        head, _, rest = line.partition(separator)
        prose = separator == b"," and b" " in head and rest.startswith(b" ")
        if separator in line and b":" not in head and not prose:
            return f"this looks like a CSV file, with fields between {name}"
    try:
        float(line.split()[0])
    except ValueError:
        return "this looks like a text file"
    return None


@functools.lru_cache(maxsize=1024)  # the files of one data set belong to several folds
def _scan(source: _Source, shown: bool | None) -> _Extent:
    state = np.zeros(5, np.int64)
    state[HIGHEST] = -1
    text = 0
    for buffer, size in _blocks(source, "scanning", shown, state):
        if (nul := buffer.find(b"\0", 0, size)) >= 0:
            raise source.refuse(int(state[LINES]) + buffer.count(b"\n", 0, nul) + 1, "binary data, not text")
        if not state[ROWS] and (kind := _other_kind(buffer, size)):
            raise source.refuse(int(state[LINES]) + 1, f"{kind}, not svmlight, in which a line is {_LINE}")
        scan_block(np.frombuffer(buffer, np.uint8), size, state)
        text += size
    if not state[ROWS]:
        raise source.refuse(max(int(state[LINES]), 1), "the file ends without any data")
    return _Extent(int(state[ROWS]), int(state[ZERO_AT]), int(state[HIGHEST]), int(state[HIGHEST_AT]), text)


def _token(buffer: bytearray, at: int) -> str:
    match = re.compile(rb"[^\s#]*").match(buffer, at, at + 100)
    text = match[0].decode("utf-8", "backslashreplace") if match else ""
    return repr(text if len(text) <= 40 else text[:40] + "...") if text else "nothing"


class _Content(NamedTuple):
    data: RankingData
    names: list[bytes]  # the ids of queries


class _Parsed(NamedTuple):
    content: _Content
    mixed: bool  # whether index 0 looks like a mistake


def _parse(source: _Source, extent: _Extent, base: int, width: int, *, guess: bool, shown: bool | None) -> _Parsed:
    """Read a file of a known shape; `guess` says that the first index was inferred, not given."""
    features = np.zeros((extent.rows, width), np.float32)
    labels = np.empty(extent.rows)
    state = np.zeros(9, np.int64)
    queries, hard = np.empty((0, 4), np.int64), np.empty((0, 5), np.int64)
    name = b""
    known: dict[bytes, None] = {}  # in their order
    starts: list[NDArray[np.int64]] = []
    for buffer, size in _blocks(source, "reading", shown, state):
        if size > 4 * len(hard):  # a row takes at least 8 bytes, a pair 4; what is not used takes no memory
            queries, hard = np.empty((len(buffer) // 8 + 1, 4), np.int64), np.empty((len(buffer) // 4 + 1, 5), np.int64)
        state[QUERIES] = state[HARD] = 0
        block = Block(np.frombuffer(buffer, np.uint8), size, np.array(bytearray(name), np.uint8))
        parse_block(block, Rows(features, labels, base), Found(queries, hard, state), POWERS)
        for _, begin, end, line in queries[: state[QUERIES]].tolist():
            name = bytes(buffer[begin:end])
            if name in known:
                raise source.refuse(line, f"query {_token(buffer, begin)} was left before and comes back; sort by query")
            known[name] = None
        starts.append(queries[: state[QUERIES], 0].copy())
        for row, column, begin, end, line in hard[: state[HARD]].tolist():
            target = labels if column < 0 else features[:, column]
            with np.errstate(over="ignore"):
                target[row] = float(buffer[begin:end])
            if np.isinf(target[row]):
                bits = 8 * target.itemsize
                raise source.refuse(line, f"{_token(buffer, begin)} is too large for {bits} bits")
        if state[PROBLEM]:
            raise source.refuse(int(state[LINES]), PROBLEMS[state[PROBLEM]].format(token=_token(buffer, int(state[AT]))))
    mixed = bool(state[RUN] > 0 and state[MIXED_AT])
    if mixed and guess:
        raise source.refuse(
            int(state[MIXED_AT]),
            f"this line counts its {state[RUN]} features from {1 - state[FIRST]}, the first line from {state[FIRST]}; "
            "if all count from 0, pass first_index=0",
        )
    if state[ROWS] != extent.rows or _Source.of(source.path, source.name) != source:
        raise source.refuse(int(state[LINES]), PROBLEMS[CHANGED])
    groups = np.diff(np.concatenate([*starts, [extent.rows]]))
    return _Parsed(_Content(RankingData(features, labels, groups), list(known)), mixed)


# ------------------------------------------------------------ cache

_FORMAT = 2
_HEADER = 8192  # bytes, so that what follows lies on whole pages


def _cache_folder() -> pathlib.Path | None:
    """Where the user's caches are kept, or None if the cache is switched off."""
    if os.environ.get(CACHE_SWITCH, "").strip().lower() in {"0", "off", "no", "false"}:
        return None
    base = os.environ.get("XDG_CACHE_HOME")
    if not base and sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    try:
        folder = pathlib.Path(base or ("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")).expanduser()
    except RuntimeError:  # no home
        return None
    return folder / "stochasticrank_objectives"


def _entry(source: _Source) -> pathlib.Path | None:
    """The one place for a file, whatever its version: what is out of date is written over, never left behind."""
    folder = _cache_folder()
    return folder and folder / f"{hashlib.sha256(os.fsencode(source.path)).hexdigest()[:32]}.letor"


class _Header(NamedTuple):
    """What an entry says of itself. It holds the columns from the file's own first index to its highest."""

    source: _Source
    extent: _Extent
    queries: int
    names: int  # bytes of their ids, each on a line; empty lines fill up the last 8 bytes
    checksum: int

    @property
    def base(self) -> int:
        return 0 if self.extent.zero_line else 1

    @property
    def columns(self) -> int:
        return max(self.extent.highest + 1 - self.base, 0)

    @property
    def size(self) -> int:
        return _HEADER + 8 * self.extent.rows + 8 * self.queries + self.names + 4 * self.extent.rows * self.columns

    def seal(self) -> bytes:
        """As it stands at the beginning of an entry."""
        text = json.dumps([_FORMAT, sys.byteorder, *self])
        return json.dumps([text, zlib.crc32(text.encode("ascii"))]).encode("ascii").ljust(_HEADER)

    @classmethod
    def unseal(cls, sealed: bytes) -> _Header:
        _, _, source, extent, queries, names, checksum = json.loads(json.loads(sealed)[0])
        header = cls(_Source(*source), _Extent(*extent), queries, names, checksum)
        if header.seal() != sealed:
            raise ValueError("damaged, or of another format")
        return header


def _recall_header(source: _Source) -> _Header | None:
    path = _entry(source)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            header = _Header.unseal(file.read(_HEADER))
            right = header.source == source._replace(name=None) and header.size == os.fstat(file.fileno()).st_size
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return header if right else None


def _recall(source: _Source, base: int, width: int) -> _Content | None:
    """A file from the cache, mapped into memory if its columns are those wanted; None unless it is there and sound."""
    header, path = _recall_header(source), _entry(source)
    if header is None or path is None:
        return None
    try:
        # Copy on write: the caller may change what it gets, the file stays as it is.
        raw = np.asarray(np.memmap(path, np.uint8, "c"))
    except (OSError, ValueError):
        return None
    if len(raw) != header.size or zlib.crc32(raw[_HEADER:].data) != header.checksum:
        return None
    rows, columns = header.extent.rows, header.columns
    ends = np.cumsum([8 * rows, 8 * header.queries, header.names])
    labels, groups, names, cells = np.split(raw[_HEADER:], ends)
    features = cells.view(np.float32).reshape(rows, columns)
    if (base, width) != (header.base, columns):
        shift = header.base - base
        wanted = np.zeros((rows, width), np.float32)
        wanted[:, shift : shift + columns] = features
        features = wanted
    data = RankingData(features, labels.view(np.float64), groups.view(np.int64))
    return _Content(data, names.tobytes().split())


def _remember(source: _Source, extent: _Extent, base: int, content: _Content) -> None:
    """Put what was read into the cache; if that fails it is no error: the next reading can do without it."""
    path = _entry(source)
    if path is None:
        return
    data = content.data
    names = b"".join(name + b"\n" for name in content.names)
    names += b"\n" * (-len(names) % 8)
    header = _Header(source._replace(name=None), extent, len(data.groups), len(names), 0)
    columns = slice(header.base - base, header.base - base + header.columns)
    step = max(_BLOCK // max(4 * header.columns, 1), 1)
    pieces = (data.features[at : at + step, columns] for at in range(0, extent.rows, step))
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            temporary = file.name
            file.write(bytes(_HEADER))
            checksum = 0
            for part in itertools.chain([data.labels, data.groups, np.frombuffer(names, np.uint8)], pieces):
                piece = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
                checksum = zlib.crc32(piece, checksum)
                file.write(piece)
            sealed = header._replace(checksum=checksum).seal()
            if len(sealed) > _HEADER:
                raise OSError("the path is too long for the header")
            file.seek(0)
            file.write(sealed)
        os.replace(temporary, path)
        temporary = None
    except OSError:
        pass
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


# ------------------------------------------------------------ files


class _Options(NamedTuple):
    """What the caller asked for."""

    features: int | None
    first_index: int | None
    cache: bool
    progress: bool | None
    name: str | None = None

    def check(self) -> _Options:
        if self.features is not None and not (isinstance(self.features, int | np.integer) and self.features >= 1):
            raise ValueError(f"features must be a whole number of columns, at least 1, or None, got {self.features!r}")
        if self.first_index not in (None, 0, 1):
            raise ValueError(f"first_index must be 0, 1 or None, got {self.first_index!r}")
        return self


class _Files:
    """Files that are to have the same columns."""

    def __init__(self, paths: Sequence[_Path], options: _Options) -> None:
        self.options = options
        self.sources = [_Source.of(path, options.name) for path in paths]
        self.extents = [self._extent(source) for source in self.sources]
        self.base, self.width = self._columns()

    def _extent(self, source: _Source) -> _Extent:
        header = _recall_header(source) if self.options.cache else None
        return header.extent if header else _scan(source, self.options.progress)

    def _columns(self) -> tuple[int, int]:
        """The first index and the number of columns that suit all files."""
        found = list(zip(self.sources, self.extents, strict=True))
        features, first_index = self.options.features, self.options.first_index
        zeros = [(source, extent) for source, extent in found if extent.zero_line]
        if first_index == 1 and zeros:
            source, extent = zeros[0]
            raise source.outside(extent.zero_line, 0, "index 0, but first_index=1; leave it out or pass 0 to count from 0")
        base = int(first_index) if first_index is not None else 0 if zeros else 1
        source, extent = max(found, key=lambda one: one[1].highest)
        ends = {zero.highest + 1 for _, zero in zeros}
        if first_index is None and not extent.zero_line and ends == {extent.highest}:
            raise source.refuse(
                extent.highest_line,
                f"index {extent.highest}, and no line of this file has index 0, but {zeros[0][0].path} counts from 0 to "
                f"{extent.highest - 1}; if both count from 0, pass first_index=0",
            )
        width = extent.highest + 1 - base
        if features is not None:
            if width > features:
                raise source.outside(
                    extent.highest_line, extent.highest, f"index {extent.highest} is beyond features={features}"
                )
            return base, int(features)
        if width < 1:
            raise source.refuse(
                1, "there is no feature after qid:ID in this line nor in any other; pass features= if that is meant"
            )
        cells = width * sum(one.rows for one in self.extents)
        if 4 * cells > max(_MODEST, 100 * sum(one.size for one in self.extents)):
            raise source.refuse(
                extent.highest_line,
                f"index {extent.highest} makes a matrix of {4 * cells / 2**30:.1f} GiB, nearly all zeros; "
                f"if it is not a mistake, pass features={width}",
            )
        return base, width

    def read(self, at: int) -> RankingData:
        """One of the files."""
        return self.content(at).data

    def content(self, at: int) -> _Content:
        """One of the files, with the ids of its queries."""
        source, extent, options = self.sources[at], self.extents[at], self.options
        if options.cache and (content := _recall(source, self.base, self.width)) is not None:
            return content
        parsed = _parse(source, extent, self.base, self.width, guess=options.first_index is None, shown=options.progress)
        if options.cache and not parsed.mixed:
            _remember(source, extent, self.base, parsed.content)
        return parsed.content

    def read_all(self, positions: Sequence[int]) -> RankingData:
        """Some of the files, one after another; memory peaks at all of them plus the largest once more."""
        if len(positions) == 1:
            return self.read(positions[0])
        features = np.empty((sum(self.extents[at].rows for at in positions), self.width), np.float32)
        labels, groups = [], []
        row = 0
        for at in positions:
            data = self.read(at)
            features[row : row + len(data.labels)] = data.features
            row += len(data.labels)
            labels.append(np.array(data.labels))
            groups.append(np.array(data.groups))
            del data
        return RankingData(features, np.concatenate(labels), np.concatenate(groups))


def read_svmlight(
    path: _Path,
    *,
    features: int | None = None,
    first_index: int | None = None,
    cache: bool = True,
    progress: bool | None = None,
) -> RankingData:
    """Features, labels and query sizes from one file of lines ``label qid:ID index:value ... # comment``, gzipped or not.

    Features come as float32, and those that a line leaves out are 0. A query's id is any word; ids are compared as text, and
    the rows of a query must stand together. Blank lines and lines with only a comment are left out. Anything else that is
    not as it should be is refused with a ValueError that names the file, the line and the reason.

    Parameters
    ----------
    path
        The file.
    features
        The number of columns, if there are to be more than the file's highest index says.
    first_index
        The index of the first column; by default 0 if the file has index 0 anywhere, else 1.
    cache
        Keep what was read in the user's cache folder (``$XDG_CACHE_HOME`` or the platform's own) for a quicker next time,
        for as long as the file's size and time of change stay the same. The environment variable
        ``STOCHASTICRANK_OBJECTIVES_CACHE=0`` switches this off everywhere.
    progress
        Show a bar, which needs tqdm; by default only if the standard error stream is a terminal.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "train.txt")
    ...     with open(path, "w") as file:
    ...         _ = file.write("2 qid:a 1:0.5 3:4 # best\\n0 qid:a 2:1e-1\\n1 qid:b 1:-3\\n")
    ...     data = read_svmlight(path, cache=False)
    >>> data.features.shape, data.labels.tolist(), data.groups.tolist()
    ((3, 3), [2.0, 0.0, 1.0], [2, 1])
    """
    return _Files([path], _Options(features, first_index, cache, progress).check()).read(0)


class SvmlightFile(NamedTuple):
    """What a file holds: its data, the id of each query, and the index of the first column, found or given."""

    data: RankingData
    queries: list[str]
    first_index: int


def read_svmlight_file(
    path: _Path,
    *,
    features: int | None = None,
    first_index: int | None = None,
    cache: bool = True,
    progress: bool | None = None,
    name: str | None = None,
) -> SvmlightFile:
    """What `read_svmlight` reads, with the ids of queries and the first index. `name` is what messages call the file.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "train.txt")
    ...     with open(path, "w") as file:
    ...         _ = file.write("2 qid:a 0:0.5 3:4\\n0 qid:a 2:1e-1\\n1 qid:b 1:-3\\n")
    ...     file = read_svmlight_file(path, cache=False)
    >>> file.queries, file.first_index
    (['a', 'b'], 0)
    """
    files = _Files([path], _Options(features, first_index, cache, progress, name).check())
    content = files.content(0)
    return SvmlightFile(content.data, [one.decode("utf-8", "backslashreplace") for one in content.names], files.base)


# ------------------------------------------------------------ folders


@dataclasses.dataclass(frozen=True)
class Fold:
    """A split into training, validation and test data, read from its files each time that it is asked for.

    Nothing is held here, so that the folds of a large data set need not fit into memory together: keep what you use in a
    variable. The three have the same number of features.
    """

    name: str
    train_files: tuple[str, ...]
    valid_files: tuple[str, ...]
    test_files: tuple[str, ...]
    features: int | None = None
    first_index: int | None = None
    cache: bool = dataclasses.field(default=True, repr=False)
    progress: bool | None = dataclasses.field(default=None, repr=False)

    def _read(self, wanted: tuple[str, ...]) -> RankingData:
        paths = (*self.train_files, *self.valid_files, *self.test_files)
        files = _Files(paths, _Options(self.features, self.first_index, self.cache, self.progress))
        return files.read_all([paths.index(path) for path in wanted])

    @property
    def train(self) -> RankingData:
        """The training data."""
        return self._read(self.train_files)

    @property
    def valid(self) -> RankingData | None:
        """The validation data, or None where the folder has none."""
        return self._read(self.valid_files) if self.valid_files else None

    @property
    def test(self) -> RankingData:
        """The test data."""
        return self._read(self.test_files)


_SUFFIX = r"(?:\.(?:txt|svm|svmlight|libsvm|dat))?(?:\.gz)?"
_ROLE = re.compile(rf"(?:(?P<set>.+)[._-])?(?P<role>train|vali|valid|validation|test){_SUFFIX}", re.IGNORECASE)
_PART = re.compile(rf"S(?P<number>\d+){_SUFFIX}", re.IGNORECASE)
_FOLD = re.compile(r"fold[ _-]?(?P<number>\d+)", re.IGNORECASE)

_Split = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def _matches(folder: str, pattern: re.Pattern[str], folders: bool) -> list[tuple[re.Match[str], str]]:
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() == folders)
    return [(match, os.path.join(folder, name)) for name in names if (match := pattern.fullmatch(name))]


def _numbered(matches: list[tuple[re.Match[str], str]]) -> dict[int, str]:
    """Paths by the number in their names, in order."""
    found: dict[int, str] = {}
    for match, path in matches:
        _put(found, int(match["number"]), path)
    return dict(sorted(found.items()))


def _put(found: dict[Any, str], key: Any, path: str) -> None:
    if key in found:
        raise ValueError(f"{found[key]} and {path} are both there for the same purpose; take one of them away")
    found[key] = path


def _named_splits(folder: str) -> list[_Split]:
    """Files called train, valid and test, perhaps of several sets."""
    sets: dict[str, dict[Any, str]] = {}
    for match, path in _matches(folder, _ROLE, folders=False):
        _put(sets.setdefault(match["set"] or "", {}), match["role"].lower()[:4], path)
    splits: list[_Split] = []
    for name, files in sets.items():
        for role in ("trai", "test"):
            if role not in files:
                others = ", ".join(files.values())
                raise ValueError(f"{folder} has no {'train' if role == 'trai' else role} file that goes with {others}")
        valid = (files["vali"],) if "vali" in files else ()
        splits.append((name or os.path.basename(folder), (files["trai"],), valid, (files["test"],)))
    return splits


def _splits(folder: str) -> list[_Split]:
    if folds := _numbered(_matches(folder, _FOLD, folders=True)):
        splits = []
        for path in folds.values():
            inside = _named_splits(path)
            if len(inside) != 1:
                raise ValueError(f"{path} must have one train, one validation and one test file, has {len(inside)} sets")
            splits.append((os.path.basename(path), *inside[0][1:]))
        return splits
    if named := _named_splits(folder):
        return named
    parts = _numbered(_matches(folder, _PART, folders=False))
    count = len(parts)
    if parts and (count < 3 or list(parts) != list(range(1, count + 1))):
        raise ValueError(f"{folder} must have parts S1, S2, S3 and so on, at least three, has {', '.join(parts.values())}")
    splits = []
    for fold in range(count):
        *train, valid, test = (parts[(fold + step) % count + 1] for step in range(count))
        splits.append((f"Fold{fold + 1}", tuple(train), (valid,), (test,)))
    return splits


def load_folds(
    path: _Path,
    *,
    features: int | None = None,
    first_index: int | None = None,
    cache: bool = True,
    progress: bool | None = None,
) -> list[Fold]:
    """The folds of a data set's folder, in any of these forms; nothing is read until a fold is asked for its data.

    - ``Fold1``, ``Fold2``, ...: folders of the next kind;
    - ``train``, ``vali`` (or ``valid``, ``validation``) and ``test`` with a suffix like ``.txt``, ``.svm`` or ``.gz``, and
      perhaps a name in front, as in ``set1.train.txt``: one fold per name. The validation file may be missing;
    - ``S1``, ``S2``, ... ``Sn`` with such a suffix: fold f trains on the parts from f on, validates on the last but one and
      tests on the last, in a circle; with five parts, on f, f+1 and f+2, on f+3 and on f+4.

    The other arguments are those of `read_svmlight`. The files of a fold are given the same columns: those of the one with
    the highest index, counted from 0 if any of them has index 0.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in range(1, 6):
    ...         with open(os.path.join(folder, f"S{part}.txt"), "w") as file:
    ...             _ = file.write(f"1 qid:{part} 1:0.5 {part + 1}:1\\n0 qid:{part} 2:1\\n")
    ...     folds = load_folds(folder, cache=False)
    ...     print(len(folds), folds[3].name, folds[3].train.features.shape, folds[3].test.features.shape)
    5 Fold4 (6, 6) (2, 6)
    """
    _Options(features, first_index, cache, progress).check()
    folder = os.path.abspath(path)
    if os.path.isfile(folder):
        raise ValueError(f"{folder} is one file, not a folder of folds; read it with read_svmlight")
    splits = _splits(folder)
    if not splits:
        raise ValueError(
            f"{folder} holds no data set: there must be folders Fold1, Fold2, ..., or files train, vali and test, or parts "
            "S1, S2, ..., each .txt or .svm, perhaps .gz"
        )
    return [Fold(*split, features, first_index, cache, progress) for split in splits]
