"""Files and folders of learning-to-rank data: read as scikit-learn reads them, cached, or refused with line and reason."""

from __future__ import annotations

import doctest
import errno
import gzip
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import tqdm
from hypothesis import given, settings
from hypothesis import strategies as st

from stochasticrank_objectives.datasets import RankingData, make_ranking
from stochasticrank_objectives.experiments import letor
from stochasticrank_objectives.experiments.letor import Fold, load_folds, read_svmlight


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """An empty cache of its own for each test."""
    base = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base))
        patch.delenv(letor.CACHE_SWITCH, raising=False)
        letor._scan.cache_clear()
        yield base / "stochasticrank_objectives"


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose text was parsed."""
    names = []
    parse = letor._parse

    def spy(source: Any, *arguments: Any, **options: Any) -> Any:
        names.append(os.path.basename(source.path))
        return parse(source, *arguments, **options)

    monkeypatch.setattr(letor, "_parse", spy)
    return names


def write(path: pathlib.Path, text: str | bytes) -> pathlib.Path:
    data = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def equal(one: RankingData, other: RankingData) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def by_sklearn(path: pathlib.Path, features: int | None = None, zero_based: bool | str = "auto") -> RankingData:
    """The truth, with query ids that are numbers."""
    x, y, qid = sklearn.datasets.load_svmlight_file(str(path), n_features=features, zero_based=zero_based, query_id=True)
    starts = np.flatnonzero(np.concatenate([[True], qid[1:] != qid[:-1]]))
    return RankingData(x.toarray().astype(np.float32), y, np.diff(np.append(starts, len(qid))))


def dump(path: pathlib.Path, data: RankingData, *, zero_based: bool = False, comment: str | None = None) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    sklearn.datasets.dump_svmlight_file(
        data.features, data.labels, str(path), query_id=data.qid, zero_based=zero_based, comment=comment
    )
    return path


def as_float32(data: RankingData) -> RankingData:
    return RankingData(data.features.astype(np.float32), data.labels, data.groups)


PLAIN = "2 qid:7 1:0.5 3:4\n0 qid:7 2:0.25\n1 qid:9 1:-3 2:1e2 3:0\n"
EXPECTED = RankingData(
    np.array([[0.5, 0, 4], [0, 0.25, 0], [-3, 100, 0]], np.float32), np.array([2.0, 0.0, 1.0]), np.array([2, 1])
)

# ------------------------------------------------------------ what is read


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.rstrip("\n"),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", " \t\n"),
        PLAIN.replace(" ", "  "),
        PLAIN.replace(" ", "\t"),
        "\n \n" + PLAIN.replace("\n", "\n\n\r\n") + "\n\n",
        "# heading qid:1 9:9\n  # another\n" + PLAIN.replace("\n", " # docid = GX1 inc = 1 prob = 0.2 50:60\n"),
        PLAIN.replace("\n", "#no space 8:1\n"),
        PLAIN.replace("\n", "#\n"),
        PLAIN.replace("\n", "# caf\u00e9\n"),
        "\ufeff" + PLAIN,
        "  " + PLAIN.replace("\n", "\n   "),
        "+2 qid:7 1:+.5 3:4.\n-0 qid:7 2:2.5E-1\n1e0 qid:9 01:-3.0 2:.1e+3 003:0e999\n",
        "2.000 qid:7 1:0.50000000000000000000000000000 3:4\n0 qid:7 2:25e-2\n1 qid:9 1:-3 2:100000e-3 3:-0\n",
    ],
)
@pytest.mark.parametrize("name", ["data.txt", "data.txt.gz"])
@pytest.mark.parametrize("block", [16, 1 << 22])
def test_ways_to_write_the_same(
    tmp_path: pathlib.Path, text: str, name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letor, "_BLOCK", block)
    path = write(tmp_path / name, text)
    equal(read_svmlight(path, cache=False), EXPECTED)
    if not text.startswith("\ufeff"):
        equal(by_sklearn(path), EXPECTED)


@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize("name", ["data.svm", "data.gz"])
def test_as_scikit_learn_writes_and_reads(tmp_path: pathlib.Path, name: str, zero_based: bool) -> None:
    """Written with 16 digits, most of them more than a double's 53 bits hold."""
    data = make_ranking(60, features=12, seed=3)
    path = dump(tmp_path / "written", data, zero_based=zero_based, comment="one\ntwo")
    path = write(tmp_path / name, path.read_bytes())
    found = read_svmlight(path)
    equal(found, by_sklearn(path))
    equal(found, as_float32(data))
    assert found.features.dtype == np.float32
    assert found.features.flags.c_contiguous
    np.testing.assert_array_equal(found.qid, data.qid)


@pytest.mark.parametrize("block", [*range(9, 40), 1000, 4096])
def test_blocks_may_end_anywhere(tmp_path: pathlib.Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor, "_BLOCK", block)
    path = dump(tmp_path / "data", make_ranking(6, documents=(1, 5), features=5))
    equal(read_svmlight(path, cache=False), by_sklearn(path))


@pytest.mark.parametrize("identifier", ["0", "-5", "99999999999999999999999999", "GX000-00-0000000", "a:b", "1" * 5000, "é"])
def test_a_query_id_is_any_word(tmp_path: pathlib.Path, identifier: str) -> None:
    lines = [f"1 qid:{identifier} 1:1\n", "0 qid:other 1:2\n", f"0 qid:{identifier}x 1:3\n", f"0 qid:{identifier}x 1:4\n"]
    assert read_svmlight(write(tmp_path / "data.txt", "".join(lines))).groups.tolist() == [1, 1, 2]


def test_one_row_one_query_and_rows_without_features(tmp_path: pathlib.Path) -> None:
    equal(
        read_svmlight(write(tmp_path / "one", "3 qid:1 1:2")),
        RankingData(np.array([[2]], np.float32), np.array([3.0]), np.array([1])),
    )
    equal(
        read_svmlight(write(tmp_path / "none", "0 qid:1\n1 qid:1 2:1\n0 qid:1 #\n")),
        RankingData(np.array([[0, 0], [0, 1], [0, 0]], np.float32), np.array([0.0, 1.0, 0.0]), np.array([3])),
    )
    assert read_svmlight(write(tmp_path / "all", "0 qid:1\n0 qid:1\n"), features=2).features.tolist() == [[0, 0], [0, 0]]


def test_whether_it_is_gzipped_is_told_by_the_content(tmp_path: pathlib.Path) -> None:
    (tmp_path / "plain.gz").write_text(PLAIN)
    half = PLAIN.index("\n") + 5  # two members, as from two files put together
    (tmp_path / "zipped.txt").write_bytes(gzip.compress(PLAIN[:half].encode()) + gzip.compress(PLAIN[half:].encode()))
    equal(read_svmlight(tmp_path / "plain.gz"), EXPECTED)
    equal(read_svmlight(str(tmp_path / "zipped.txt")), EXPECTED)


NUMBERS = st.one_of(
    st.floats(-(2.0**100), 2.0**100).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.decimals(-1000, 1000, places=25).map(str),
    st.tuples(st.integers(0, 10**20), st.integers(-400, 15)).map(lambda pair: f"{pair[0]}e{pair[1]}"),
    # Halfway between two numbers of 32 bits, and a little to the side: the hardest to round.
    st.tuples(st.integers(2**23, 2**24 - 1), st.sampled_from(["", "0", "0" * 20 + "1", "49999999999999999999"])).map(
        lambda pair: f"{pair[0]}.5{pair[1]}" if not pair[1].startswith("4") else f"{pair[0]}.{pair[1]}"
    ),
    st.tuples(st.integers(2**52, 2**53), st.sampled_from(["", ".5", ".50000001", ".4999999"])).map(
        lambda pair: "".join(map(str, pair))
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=30), st.lists(NUMBERS, min_size=1, max_size=10))
def test_numbers_are_rounded_as_python_rounds_them(values: list[str], labels: list[str]) -> None:
    pairs = " ".join(f"{index}:{value}" for index, value in enumerate(values, 1))
    grades = [label.lstrip("-") for label in labels]
    with tempfile.TemporaryDirectory() as folder:
        path = write(pathlib.Path(folder, "data"), "".join(f"{grade} qid:1 {pairs}\n" for grade in grades))
        found = read_svmlight(path, cache=False)
    np.testing.assert_array_equal(found.features[0], np.array([float(value) for value in values]).astype(np.float32))
    np.testing.assert_array_equal(found.labels, [float(grade) for grade in grades])


def test_numbers_beyond_doubles_need_help_and_get_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle of two 32-bit numbers and 1e-22 more: a double cannot tell on which side it is, 18 digits neither."""
    seen = []
    kernel = letor.parse_block

    def spy(block: Any, rows: Any, found: Any, powers: Any) -> None:
        kernel(block, rows, found, powers)
        seen.append(int(found.state[letor.HARD]))

    monkeypatch.setattr(letor, "parse_block", spy)
    down, up = "16777217.0000000000000000000001", "16777219.0000000000000000000001"  # where ties to even go
    path = write(tmp_path / "data", f"0.12345678901234567 qid:1 1:{down} 2:{up} 3:0.1234567890123456789\n")
    found = read_svmlight(path)
    assert seen == [3]  # the label, which is kept in 64 bits, and two values
    assert found.labels.tolist() == [0.12345678901234567]
    assert found.features.tolist() == [[np.float32(float(token)) for token in (down, up, "0.1234567890123456789")]]


CELLS = st.dictionaries(st.integers(0, 8), st.floats(-1e6, 1e6, width=32), max_size=6)
QUERIES = st.lists(st.lists(st.tuples(st.integers(0, 4), CELLS), min_size=1, max_size=4), min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(
    QUERIES,
    st.integers(0, 1),
    st.integers(9, 80),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", " # c\n", "\n\n", "\t\n#\n"]),
)
def test_round_trip(queries: Any, base: int, block: int, zipped: bool, end: str) -> None:
    lines, labels, rows = [], [], []
    for number, query in enumerate(queries):
        for label, cells in query:
            pairs = [f"{index + base}:{value!r}" for index, value in sorted(cells.items())]
            lines.append(" ".join([str(label), f"qid:q{number}", *pairs]) + end)
            labels.append(float(label))
            rows.append([cells.get(index, 0) for index in range(9)])
    expected = RankingData(np.array(rows, np.float32), np.array(labels), np.array([len(query) for query in queries]))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "_BLOCK", block)
        path = write(pathlib.Path(folder, "data.gz" if zipped else "data"), "".join(lines))
        for _ in range(2):  # from the text, from the cache
            equal(read_svmlight(path, features=9, first_index=base), expected)


# ------------------------------------------------------------ columns


def test_more_features_than_the_file_has(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "data.txt", PLAIN)
    for _ in range(2):
        found = read_svmlight(path, features=5)
        assert found.features.shape == (3, 5)
        np.testing.assert_array_equal(found.features[:, :3], EXPECTED.features)
        assert not found.features[:, 3:].any()
        equal(read_svmlight(path), EXPECTED)
        with pytest.raises(ValueError, match=r"data\.txt, line 1: index 3 is beyond features=2"):
            read_svmlight(path, features=2)


def test_the_first_index(tmp_path: pathlib.Path) -> None:
    """Index 0 anywhere means that all count from 0, as scikit-learn has it."""
    path = write(tmp_path / "data.txt", "1 qid:1 2:5\n0 qid:1 0:3 1:4\n1 qid:2 1:7\n")
    from_zero = np.array([[0, 0, 5], [3, 4, 0], [0, 7, 0]], np.float32)
    for _ in range(2):
        equal(read_svmlight(path), by_sklearn(path))
        np.testing.assert_array_equal(read_svmlight(path).features, from_zero)
        np.testing.assert_array_equal(read_svmlight(path, first_index=0).features, from_zero)
        with pytest.raises(ValueError, match=r"data\.txt, line 2: index 0, but first_index=1"):
            read_svmlight(path, first_index=1)
    path = write(tmp_path / "other.txt", PLAIN)
    for _ in range(2):
        np.testing.assert_array_equal(read_svmlight(path, first_index=0).features[:, 1:], EXPECTED.features)
        assert read_svmlight(path, first_index=0, features=6).features.shape == (3, 6)
        equal(read_svmlight(path, first_index=1), EXPECTED)


def test_rows_that_count_from_0_and_rows_that_count_from_1(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "data.txt", "1 qid:1 1:5 2:6 3:7\n\n0 qid:1 1:1 2:2 3:3\n1 qid:2 0:5 1:6 2:7\n")
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"data\.txt, line 4: this line counts its 3 features from 0, the first line from 1"
        ):
            read_svmlight(path)
        np.testing.assert_array_equal(  # on demand
            read_svmlight(path, first_index=0).features, [[0, 5, 6, 7], [0, 1, 2, 3], [5, 6, 7, 0]]
        )
    write(path, path.read_text() + "0 qid:2 0:1\n")  # not all rows are full: these are sparse
    assert read_svmlight(path).features.shape == (4, 4)


@pytest.mark.parametrize("features", [0, -1, 2.5, "3"])
def test_bad_number_of_features(tmp_path: pathlib.Path, features: Any) -> None:
    path = write(tmp_path / "train.txt", PLAIN)
    for function in (read_svmlight, load_folds):
        with pytest.raises(ValueError, match=r"features must be a whole number of columns, at least 1, or None, got "):
            function(path, features=features)


def test_bad_first_index(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="first_index must be 0, 1 or None, got 2"):
        read_svmlight(write(tmp_path / "train.txt", PLAIN), first_index=2)


# ------------------------------------------------------------ what is refused

GOOD = "1 qid:1 1:0.5 2:1\n"
REFUSED = [
    ("x qid:2 1:1", "the label 'x' is not a number"),
    ("nan qid:2 1:1", "the label 'nan' is not a number"),
    ("inf qid:2 1:1", "the label 'inf' is not a number"),
    ("1e999 qid:2 1:1", "'1e999' is too large for 64 bits"),
    ("1.2.3 qid:2 1:1", r"the label '1\.2\.3' is not a number"),
    ("1_0 qid:2 1:1", "the label '1_0' is not a number"),
    ("+ qid:2 1:1", r"the label '\+' is not a number"),
    (". qid:2 1:1", r"the label '\.' is not a number"),
    ("0x1 qid:2 1:1", "the label '0x1' is not a number"),
    ("1e qid:2 1:1", "the label '1e' is not a number"),
    ("qid:2 1:1", "the label 'qid:2' is not a number"),
    ("1,2 qid:2 1:1", "the label '1,2' is not a number"),
    ("-1 qid:2 1:1", "the label '-1' is negative; shift"),
    ("-0.5 qid:2 1:1", r"the label '-0\.5' is negative"),
    ("1", "there is no qid:ID after the label, but nothing"),
    ("1 # qid:1", "there is no qid:ID after the label, but nothing"),
    ("1 1:0.5 2:1", r"there is no qid:ID after the label, but '1:0\.5'"),
    ("1 1:0.5 qid:2", r"there is no qid:ID after the label, but '1:0\.5'"),
    ("1 qid: 1:0.5", "there is no qid:ID after the label, but 'qid:'"),
    ("1 qi", "there is no qid:ID after the label, but 'qi'"),
    ("1 QID:2 1:1", "there is no qid:ID after the label, but 'QID:2'"),
    ("1 qid:2 1:1 5", "'5' is not index:value"),
    ("1 qid:2 1 1", "'1' is not index:value"),
    ("1 qid:2 :1", "':1' is not index:value"),
    ("1 qid:2 x:1", "'x:1' is not index:value"),
    ("1 qid:2 -1:1", "'-1:1' is not index:value with a whole index from 0"),
    ("1 qid:2 1.5:1", r"'1\.5:1' is not index:value"),
    ("1 qid:2 qid:3 1:1", "'qid:3' is not index:value"),
    ("1 qid:2 1:1 0 qid:3 1:1", "'0' is not index:value"),
    ("1 qid:2 2:1 1:1", "the index in '1:1' is not larger than the one before"),
    ("1 qid:2 2:1 2:1", "the index in '2:1' is not larger than the one before"),
    ("1 qid:2 1:1 0:1", "the index in '0:1' is not larger than the one before"),
    ("1 qid:2 1:1 700:1 2:1", "the index in '2:1' is not larger than the one before"),
    ("1 qid:2 0:1 1:1", "this line counts its 2 features from 0, the first line from 1"),
    ("1 qid:2 99999999999999999999999:1 ", "index 2147483647 makes a matrix of"),
    ("1 qid:2 99999999999999999999999:1 2:2", "the index in '99999999999999999999999:1' is larger than 2147483646"),
    ("1 qid:2 1:", "the value in '1:' is not a finite number"),
    ("1 qid:2 1: 2", "the value in '1:' is not a finite number"),
    ("1 qid:2 1:nan", "the value in '1:nan' is not a finite number"),
    ("1 qid:2 1:NaN 2:1", "the value in '1:NaN' is not a finite number"),
    ("1 qid:2 1:-inf", "the value in '1:-inf' is not a finite number"),
    ("1 qid:2 1:1:2", "the value in '1:1:2' is not a finite number"),
    ("1 qid:2 1:0,5", "the value in '1:0,5' is not a finite number"),
    ("1 qid:2 1:1e+", r"the value in '1:1e\+' is not a finite number"),
    ("1 qid:2 1:--1", "the value in '1:--1' is not a finite number"),
    ("1 qid:2 1:1e39", "the value in '1:1e39' is too large for 32 bits"),
    ("1 qid:2 1:-1e4000000000000", "the value in '1:-1e4000000000000' is too large for 32 bits"),
    (
        "1 qid:2 1:340282356779733661637539395458142568447.9",
        r"'3402823567797336\d*\.+' is too large for 32 bits",
    ),
    ("1 qid:2 1:1\0", "binary data, not text"),
    ("1 qid:2 1:1\x1a", r"the value in '1:1\\x1a' is not a finite number"),
    ("1 qid:2 1:" + "é" * 60, r"the value in '1:é{38}\.\.\.' is not a finite number"),
]


@pytest.mark.parametrize(("line", "reason"), REFUSED)
@pytest.mark.parametrize("name", ["data.txt", "data.txt.gz"])
@pytest.mark.parametrize("block", [32, 1 << 22])
def test_a_damaged_line_is_named(
    tmp_path: pathlib.Path,
    cache_folder: pathlib.Path,
    line: str,
    reason: str,
    name: str,
    block: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(letor, "_BLOCK", block)
    path = write(tmp_path / name, GOOD + "\n# comment\n" + GOOD + line + "\n" + GOOD.replace("qid:1", "qid:2"))
    with pytest.raises(ValueError, match=rf"^{path}, line 5: {reason}"):
        read_svmlight(path)
    assert not cache_folder.exists()


@pytest.mark.parametrize("block", [10, 1 << 22])
def test_a_query_that_comes_back(tmp_path: pathlib.Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor, "_BLOCK", block)
    path = write(tmp_path / "data.txt", "".join(f"1 qid:{query} 1:1\n" for query in "aabbca"))
    with pytest.raises(ValueError, match=r"data\.txt, line 6: query 'a' was left before and comes back; sort by query"):
        read_svmlight(path)
    write(path, path.read_text() + "damaged\n")  # the earlier line is named
    with pytest.raises(ValueError, match="line 6: query 'a'"):
        read_svmlight(path)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", " \r\n"])
@pytest.mark.parametrize("name", ["data.txt", "data.gz"])
def test_an_empty_file(tmp_path: pathlib.Path, text: str, name: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(ValueError, match=rf"{path}, line \d: the file ends without any data"):
        read_svmlight(path)


def test_no_feature_at_all(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ValueError, match=r"data\.txt, line 1: there is no feature after qid:ID in this line nor in any other"
    ):
        read_svmlight(write(tmp_path / "data.txt", "0 qid:1\n1 qid:1\n"))


def test_damaged_gzip(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    text = "".join(f"1 qid:1 1:{value}\n" for value in rng.random(3000)).encode()
    whole = gzip.compress(text)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    for damaged in (whole[:-1], whole[:-9], whole[: len(whole) // 2], whole[:5], whole + b"garbage", bytes(flipped)):
        (tmp_path / "data.gz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"data\.gz, line \d+: (the gzip data is damaged here or soon after: |)\w"):
            read_svmlight(tmp_path / "data.gz")
    (tmp_path / "data.gz").write_bytes(whole)
    assert len(read_svmlight(tmp_path / "data.gz").labels) == 3000


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.integers(9, 64))
def test_garbage_is_refused_not_read(garbage: bytes, block: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "_BLOCK", block)
        path = pathlib.Path(folder, "data")
        path.write_bytes(b"!" + garbage)
        with pytest.raises(ValueError, match=r"data, line \d+: "):
            read_svmlight(path)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(PLAIN) - 1), st.binary(min_size=1, max_size=3), st.integers(9, 64))
def test_a_changed_byte_gives_what_scikit_learn_reads_or_an_error(at: int, change: bytes, block: int) -> None:
    text = PLAIN.encode()[:at] + change + PLAIN.encode()[at + 1 :]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "_BLOCK", block)
        path = pathlib.Path(folder, "data")
        path.write_bytes(text)
        try:
            found = read_svmlight(path, cache=False)
        except ValueError as error:
            assert "data, line " in str(error)  # noqa: PT017 - it may also be read
            return
        identifiers = re.findall(rb"qid:([^\s#]*)", text)
        if all(re.fullmatch(rb"[1-9]\d*", identifier) for identifier in identifiers):  # scikit-learn reads them as numbers
            equal(found, by_sklearn(path))


def test_an_index_that_would_fill_the_memory(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "data.txt", GOOD * 1000 + "0 qid:1 1000000:1\n")
    with pytest.raises(ValueError, match=r"line 1001: index 1000000 makes a matrix of 3\.7 GiB, .* pass features=1000000"):
        read_svmlight(path)


def test_a_line_without_end(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor, "_BLOCK", 64)
    monkeypatch.setattr(letor, "_LONGEST_LINE", 1000)
    path = write(tmp_path / "data.txt", GOOD + "x" * 5000)
    with pytest.raises(ValueError, match=r"data\.txt, line 2: it is longer than 1000 bytes; is this text\?"):
        read_svmlight(path)
    write(path, GOOD + "0 qid:1 1:1 # " + "x" * 900)
    assert len(read_svmlight(path).labels) == 2


@pytest.mark.parametrize("later", [GOOD * 3, GOOD, GOOD + "0 qid:1 1:1 2:1 3:1\n", GOOD + GOOD.replace("0.5", "0.7")])
def test_a_file_that_changes_meanwhile(tmp_path: pathlib.Path, later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "data.txt", GOOD * 2)
    scan = letor._scan

    def change(*arguments: Any) -> Any:
        found = scan(*arguments)
        write(path, later)
        os.utime(path, ns=(1, 1))
        return found

    monkeypatch.setattr(letor, "_scan", change)
    with pytest.raises(ValueError, match=r"data\.txt, line \d: the file was changed while it was being read"):
        read_svmlight(path)


def test_no_file_and_a_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_svmlight(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        load_folds(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is a folder; give a file of it, or give the folder to load_folds"):
        read_svmlight(tmp_path)
    with pytest.raises(ValueError, match="is one file, not a folder of folds; read it with read_svmlight"):
        load_folds(write(tmp_path / "train.txt", PLAIN))


# ------------------------------------------------------------ memory


@pytest.mark.parametrize("name", ["data.txt", "data.txt.gz"])
def test_memory_stays_near_the_matrix(tmp_path: pathlib.Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = 1 << 16
    monkeypatch.setattr(letor, "_BLOCK", block)
    lines = [f"1 qid:{row // 100} " + " ".join(f"{column}:0.25" for column in range(1, 61)) for row in range(20_000)]
    path = write(tmp_path / name, "\n".join(lines))
    read_svmlight(write(tmp_path / "small", PLAIN))  # compiles
    del lines
    tracemalloc.start()
    try:
        data = read_svmlight(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert data.features.shape == (20_000, 60)
    assert data.features.base is None
    assert peak < data.features.nbytes + data.labels.nbytes + 25 * block


# ------------------------------------------------------------ cache


def test_the_second_time_comes_from_the_cache(
    tmp_path: pathlib.Path, cache_folder: pathlib.Path, parses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "data.txt", PLAIN)
    equal(read_svmlight(path), EXPECTED)
    assert len(list(cache_folder.iterdir())) == 1
    for _ in range(2):
        letor._scan.cache_clear()
        found = read_svmlight(path)
        equal(found, EXPECTED)
        assert type(found.features) is np.ndarray
        assert found.features.flags.aligned
        found.features[:] = 17  # concerns nobody else
        found.labels[:] = 17
    monkeypatch.chdir(tmp_path)
    equal(read_svmlight("data.txt"), EXPECTED)
    assert parses == ["data.txt"]
    assert letor._scan.cache_info().misses == 0
    equal(read_svmlight(path, cache=False), EXPECTED)
    assert parses == ["data.txt"] * 2


def test_a_changed_file_is_read_again(tmp_path: pathlib.Path, cache_folder: pathlib.Path, parses: list[str]) -> None:
    path = write(tmp_path / "data.txt", PLAIN)
    read_svmlight(path)
    write(path, PLAIN.replace("0.25", "0.75"))  # of the same size
    os.utime(path, ns=(10**18, 10**18))
    assert read_svmlight(path).features[1, 1] == 0.75
    write(path, PLAIN + "0 qid:9 1:1\n")
    os.utime(path, ns=(10**18, 10**18))
    assert len(read_svmlight(path).labels) == 4
    assert len(parses) == 3
    assert len(list(cache_folder.iterdir())) == 1  # nothing out of date is left


def test_files_of_the_same_name_do_not_meet(tmp_path: pathlib.Path) -> None:
    one, other = write(tmp_path / "a" / "data.txt", PLAIN), write(tmp_path / "b" / "data.txt", PLAIN.replace("0.25", "0.75"))
    for path in (one, other):
        os.utime(path, ns=(10**18, 10**18))
    for _ in range(2):
        assert read_svmlight(one).features[1, 1] == 0.25
        assert read_svmlight(other).features[1, 1] == 0.75


def flip(position: int) -> Any:
    def change(entry: bytes) -> bytes:
        at = position % len(entry)
        return entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :]

    return change


DAMAGE = {
    "emptied": lambda entry: b"",
    "cut": lambda entry: entry[:-1],
    "cut in the header": lambda entry: entry[:100],
    "header alone": lambda entry: entry[: letor._HEADER],
    "longer": lambda entry: entry + b"\0",
    "zeros": lambda entry: bytes(len(entry)),
    "garbage": lambda entry: b"\xff" * len(entry),
    "other JSON": lambda entry: b"[1, 2]".ljust(len(entry)),
    "other JSON still": lambda entry: b'["[1, 2, 3, 4, 5, 6]", 7]'.ljust(len(entry)),
    "of another format": lambda entry: entry.replace(b"[2, ", b"[1, ", 1),
    **{f"bit at {position}": flip(position) for position in (0, 3, 20, 60, letor._HEADER, letor._HEADER + 30, -1)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_rebuilt(
    tmp_path: pathlib.Path, cache_folder: pathlib.Path, parses: list[str], damage: str
) -> None:
    path = write(tmp_path / "data.txt", PLAIN)
    read_svmlight(path)
    (entry,) = cache_folder.iterdir()
    before = entry.read_bytes()
    damaged = DAMAGE[damage](before)
    assert damaged != before
    entry.write_bytes(damaged)
    letor._scan.cache_clear()
    equal(read_svmlight(path), EXPECTED)
    assert len(parses) == 2
    assert entry.read_bytes() == before
    equal(read_svmlight(path), EXPECTED)
    assert len(parses) == 2


def test_a_folder_in_the_place_of_an_entry(tmp_path: pathlib.Path, cache_folder: pathlib.Path) -> None:
    path = write(tmp_path / "data.txt", PLAIN)
    read_svmlight(path)
    (entry,) = cache_folder.iterdir()
    entry.unlink()
    entry.mkdir()
    for _ in range(2):
        equal(read_svmlight(path), EXPECTED)
    assert list(cache_folder.iterdir()) == [entry]


def test_no_room_for_the_cache(tmp_path: pathlib.Path, cache_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "data.txt", PLAIN)

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        equal(read_svmlight(path), EXPECTED)
    assert list(cache_folder.iterdir()) == []

    monkeypatch.setenv("XDG_CACHE_HOME", str(write(tmp_path / "file", "not a folder")))
    for _ in range(2):
        equal(read_svmlight(path), EXPECTED)

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(pathlib.Path, "expanduser", lambda self: (_ for _ in ()).throw(RuntimeError("no home")))
    equal(read_svmlight(path), EXPECTED)


def test_a_path_too_long_for_the_header(
    tmp_path: pathlib.Path, cache_folder: pathlib.Path, parses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letor, "_HEADER", 128)
    path = write(tmp_path / ("a" * 100) / "data.txt", PLAIN)
    for _ in range(2):
        equal(read_svmlight(path), EXPECTED)
    assert len(parses) == 2
    assert list(cache_folder.iterdir()) == []


@pytest.mark.parametrize("value", ["0", "off", "No", "FALSE "])
def test_the_cache_can_be_switched_off(
    tmp_path: pathlib.Path, cache_folder: pathlib.Path, parses: list[str], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "data.txt", PLAIN)
    equal(read_svmlight(path, cache=False), EXPECTED)
    monkeypatch.setenv(letor.CACHE_SWITCH, value)
    equal(read_svmlight(path), EXPECTED)
    assert not cache_folder.exists()
    monkeypatch.setenv(letor.CACHE_SWITCH, "1")
    equal(read_svmlight(path), EXPECTED)
    assert cache_folder.exists()
    monkeypatch.setenv(letor.CACHE_SWITCH, value)
    equal(read_svmlight(path), EXPECTED)
    assert len(parses) == 4


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x"),
        ("linux", {"LOCALAPPDATA": "/l"}, "~/.cache"),
        ("linux", {"XDG_CACHE_HOME": ""}, "~/.cache"),
        ("darwin", {}, "~/Library/Caches"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "/x"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l"),
        ("win32", {}, "~/.cache"),
    ],
)
def test_where_the_cache_is(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = pathlib.Path(expected.replace("~", str(tmp_path)))
    assert letor._cache_folder() == folder / "stochasticrank_objectives"


# ------------------------------------------------------------ progress


@pytest.mark.parametrize("name", ["data.txt", "data.gz"])
def test_progress(
    tmp_path: pathlib.Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / name, PLAIN)
    for progress in (False, None):  # no terminal here
        equal(read_svmlight(path, cache=False, progress=progress), EXPECTED)
    assert capsys.readouterr().err == ""
    equal(read_svmlight(path, cache=False, progress=True), EXPECTED)
    shown = capsys.readouterr().err
    assert f"scanning {name}" in shown
    assert f"reading {name}" in shown
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    read_svmlight(path, cache=False)
    assert f"reading {name}" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm", None)
    equal(read_svmlight(path, cache=False, progress=True), EXPECTED)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["data.txt", "data.gz"])
def test_progress_goes_to_the_end_of_the_file(tmp_path: pathlib.Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bars = []

    class Bar(tqdm.tqdm):  # type: ignore[type-arg]
        def close(self) -> None:
            if not self.disable:
                bars.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    monkeypatch.setattr(letor, "_BLOCK", 30)
    path = write(tmp_path / name, PLAIN)
    read_svmlight(path, cache=False, progress=True)
    assert bars == [(path.stat().st_size, path.stat().st_size)] * 2


# ------------------------------------------------------------ folders


def small(number: int, features: int = 4) -> RankingData:
    return make_ranking(4 + number, documents=(2, 6), features=features, seed=number)


def padded(data: RankingData, features: int) -> RankingData:
    missing = features - data.features.shape[1]
    return as_float32(RankingData(np.pad(data.features, [(0, 0), (0, missing)]), data.labels, data.groups))


def joined(*parts: RankingData) -> RankingData:
    return RankingData(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def check_fold(fold: Fold, train: RankingData, valid: RankingData | None, test: RankingData) -> None:
    for _ in range(2):  # from the text, from the cache
        equal(fold.train, train)
        equal(fold.test, test)
        if valid is None:
            assert fold.valid is None
        else:
            assert fold.valid is not None
            equal(fold.valid, valid)


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "vali.txt", "test.txt"),
        ("train.txt.gz", "valid.txt.gz", "test.txt.gz"),
        ("train.svm", "validation.svm", "test.svm.gz"),
        ("Train.TXT", "Vali.TXT", "Test.TXT"),
        ("set1.train.txt", "set1.valid.txt", "set1.test.txt"),
        ("train", "valid", "test"),
        ("mslr_train.dat", "mslr_vali.dat", "mslr_test.dat"),
    ],
)
@pytest.mark.parametrize("cache", [True, False])
def test_a_folder_of_three_files(tmp_path: pathlib.Path, names: tuple[str, str, str], cache: bool) -> None:
    """Each of another number of features: all get the largest."""
    data = [small(number, 4 + number) for number in range(3)]
    folder = tmp_path / "MSLR"
    for name, part in zip(names, data, strict=True):
        written = dump(tmp_path / "written", part).read_bytes()
        write(folder / name, written)
    write(folder / "README.txt", "nothing to read")
    write(folder / "latest.txt", "nothing to read")
    (folder / "test.folder").mkdir()
    (fold,) = load_folds(folder, cache=cache, progress=False)
    assert fold.name == {"set1": "set1", "mslr": "mslr"}.get(names[0][:4], "MSLR")
    check_fold(fold, *(padded(part, 6) for part in data))


def test_two_sets_in_a_folder(tmp_path: pathlib.Path) -> None:
    for number, name in enumerate(["set1", "set2"]):
        for role, kind in enumerate(["train", "valid", "test"]):
            dump(tmp_path / f"{name}.{kind}.txt", small(3 * number + role, 4 + number))
    folds = load_folds(str(tmp_path))
    assert [fold.name for fold in folds] == ["set1", "set2"]
    for number, fold in enumerate(folds):
        check_fold(fold, *(as_float32(small(3 * number + role, 4 + number)) for role in range(3)))


def test_no_validation_file(tmp_path: pathlib.Path) -> None:
    dump(tmp_path / "rank.train", small(0))
    dump(tmp_path / "rank.test", small(1))
    (fold,) = load_folds(tmp_path)
    check_fold(fold, as_float32(small(0)), None, as_float32(small(1)))


def test_folders_of_folds(tmp_path: pathlib.Path) -> None:
    """LETOR's own folders have the parts beside the folds; the folds come first, and by number."""
    for number in (1, 2, 10):
        for role, kind in enumerate(["train", "vali", "test"]):
            dump(tmp_path / f"Fold{number}" / f"{kind}.txt", small(3 * number + role))
    dump(tmp_path / "S1.txt", small(1))
    folds = load_folds(tmp_path)
    assert [fold.name for fold in folds] == ["Fold1", "Fold2", "Fold10"]
    for number, fold in zip((1, 2, 10), folds, strict=True):
        check_fold(fold, *(as_float32(small(3 * number + role)) for role in range(3)))


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_five_parts(tmp_path: pathlib.Path, cache: bool, suffix: str) -> None:
    parts = [small(number, 4 + number % 3) for number in range(5)]
    for number, part in enumerate(parts):
        write(tmp_path / "MQ" / f"S{number + 1}{suffix}", dump(tmp_path / "written", part).read_bytes())
    folds = load_folds(tmp_path / "MQ", cache=cache)
    assert [fold.name for fold in folds] == ["Fold1", "Fold2", "Fold3", "Fold4", "Fold5"]
    wide = [padded(part, 6) for part in parts]
    check_fold(folds[0], joined(wide[0], wide[1], wide[2]), wide[3], wide[4])
    check_fold(folds[1], joined(wide[1], wide[2], wide[3]), wide[4], wide[0])
    check_fold(folds[2], joined(wide[2], wide[3], wide[4]), wide[0], wide[1])
    check_fold(folds[3], joined(wide[3], wide[4], wide[0]), wide[1], wide[2])
    check_fold(folds[4], joined(wide[4], wide[0], wide[1]), wide[2], wide[3])


def test_nothing_is_read_before_it_is_asked_for(tmp_path: pathlib.Path, parses: list[str]) -> None:
    for kind in ("train", "vali", "test"):
        write(tmp_path / f"{kind}.txt", PLAIN)
    (fold,) = load_folds(tmp_path)
    assert parses == []
    again = pickle.loads(pickle.dumps(fold))
    assert again == fold
    equal(again.test, EXPECTED)
    assert parses == ["test.txt"]
    assert letor._scan.cache_info().misses == 3  # for the number of columns
    assert again.train.features is not again.train.features  # nothing is held


def test_a_fold_counts_from_0_if_any_of_its_files_does(tmp_path: pathlib.Path) -> None:
    """Alone, the test file would be taken for one that counts from 1, and its features for those before them."""
    for name, text in (("train", "1 qid:1 0:1 4:2\n"), ("vali", "1 qid:1 0:1\n"), ("test", "1 qid:1 1:3 2:4\n")):
        write(tmp_path / f"{name}.txt", text)
    for _ in range(2):
        (fold,) = load_folds(tmp_path)
        assert fold.test.features.tolist() == [[0, 3, 4, 0, 0]]
        assert fold.train.features.tolist() == [[1, 0, 0, 0, 2]]
        assert read_svmlight(tmp_path / "test.txt").features.tolist() == [[3, 4]]
    with pytest.raises(ValueError, match=r"train\.txt, line 1: index 0, but first_index=1"):
        load_folds(tmp_path, first_index=1)[0].test  # noqa: B018


def test_files_that_count_from_0_beside_files_that_count_from_1(tmp_path: pathlib.Path) -> None:
    for name, text in (("train", "1 qid:1 0:1 1:2 2:3\n"), ("test", "\n1 qid:1 1:1 2:2 3:3\n")):
        write(tmp_path / f"{name}.txt", text)
    (fold,) = load_folds(tmp_path)
    with pytest.raises(
        ValueError, match=r"test\.txt, line 2: index 3, and no line .* but .*train\.txt counts from 0 to 2; if"
    ):
        fold.train  # noqa: B018
    (fold,) = load_folds(tmp_path, first_index=0)
    assert fold.test.features.tolist() == [[0, 1, 2, 3]]


def test_columns_given(tmp_path: pathlib.Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / f"{name}.txt", PLAIN)
    (fold,) = load_folds(tmp_path, features=7)
    assert fold.train.features.shape == fold.test.features.shape == (3, 7)
    (fold,) = load_folds(tmp_path, features=2)
    with pytest.raises(ValueError, match=r"train\.txt, line 1: index 3 is beyond features=2"):
        fold.test  # noqa: B018


def test_damage_in_a_fold_is_named(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "train.txt", PLAIN)
    write(tmp_path / "test.txt", PLAIN + "0 qid:9 1:x\n")
    (fold,) = load_folds(tmp_path)
    equal(fold.train, EXPECTED)
    with pytest.raises(ValueError, match=r"test\.txt, line 4: the value in '1:x' is not a finite number"):
        fold.test  # noqa: B018


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "holds no data set: there must be folders Fold1"),
        (["data.txt"], "holds no data set"),
        (["train.txt"], r"has no test file that goes with .*train\.txt"),
        (["vali.txt", "test.txt"], r"has no train file that goes with .*test\.txt.*vali\.txt"),
        (["set1.train.txt", "set2.test.txt"], r"has no test file that goes with .*set1\.train\.txt"),
        (["train.txt", "train.txt.gz", "test.txt"], r"train\.txt and .*train\.txt\.gz are both there"),
        (["train.txt", "vali.txt", "valid.txt", "test.txt"], r"vali\.txt and .*valid\.txt are both there"),
        (["S1.txt", "S2.txt"], r"must have parts S1, S2, S3 and so on, at least three, has .*S1\.txt, .*S2\.txt"),
        (["S1.txt", "S2.txt", "S4.txt"], "must have parts S1, S2, S3 and so on"),
        (["S0.txt", "S1.txt", "S2.txt"], "must have parts S1, S2, S3 and so on"),
        (["S1.txt", "S1.txt.gz", "S2.txt", "S3.txt"], r"S1\.txt and .*S1\.txt\.gz are both there"),
        (["Fold1/train.txt", "Fold1/test.txt", "Fold2/train.txt"], r"Fold2 has no test file that goes with"),
        (
            ["Fold1/train.txt", "Fold1/test.txt", "Fold2/README"],
            "Fold2 must have one train, one validation and one test file",
        ),
        (["Fold1/train.txt", "Fold1/test.txt", "fold_1/train.txt"], "Fold1 and .*fold_1 are both there"),
    ],
)
def test_folders_that_are_not_understood(tmp_path: pathlib.Path, names: list[str], message: str) -> None:
    for name in names:
        write(tmp_path / name, PLAIN)
    with pytest.raises(ValueError, match=message):
        load_folds(tmp_path)


# ------------------------------------------------------------ the rest


def test_examples_in_docstrings_run() -> None:
    result = doctest.testmod(letor)
    assert result.failed == 0
    assert result.attempted >= 4


def test_one_compiled_version_serves_all(tmp_path: pathlib.Path) -> None:
    """In a process of its own, as the others here have used the kernels."""
    write(tmp_path / "a.txt", PLAIN)
    write(tmp_path / "b.txt.gz", PLAIN.replace("1:", "0:"))
    code = """
import sys
import numpy as np
from stochasticrank_objectives.experiments import letor
from stochasticrank_objectives.experiments.letor import read_svmlight
kernels = (letor.scan_block, letor.parse_block)
assert [len(kernel.signatures) for kernel in kernels] == [0, 0], "importing compiles"
for name in ("a.txt", "b.txt.gz"):
    read_svmlight(name, cache=False)
    read_svmlight(name, cache=False, features=np.int64(9), first_index=np.int64(0))
print([len(kernel.signatures) for kernel in kernels])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=500)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[1, 1]"
