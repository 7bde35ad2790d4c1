"""Standard input and output in the place of files: the name "-"."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from .letor import SvmlightFile, read_svmlight_file

STANDARD = "-"
INPUT = "standard input"


def shown(path: str) -> str:
    """What messages call a file to be read."""
    return INPUT if path == STANDARD else path


def read_data(path: str, *, first_index: int | None = None, features: int | None = None) -> SvmlightFile:
    """A file in the svmlight format, or standard input. It is read twice, so standard input goes to a temporary file."""
    if path != STANDARD:
        return read_svmlight_file(path, first_index=first_index, features=features, name=path)
    with tempfile.NamedTemporaryFile(delete=False) as copy:
        try:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.close()
            return read_svmlight_file(copy.name, first_index=first_index, features=features, cache=False, name=INPUT)
        finally:
            copy.close()
            os.unlink(copy.name)


@contextlib.contextmanager
def reading(path: str) -> Iterator[Any]:
    """Lines of a text file, or of standard input."""
    if path == STANDARD:
        yield sys.stdin
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        yield file


@contextlib.contextmanager
def writing(path: str) -> Iterator[Any]:
    """A text file to write to, or standard output."""
    if path == STANDARD:
        yield sys.stdout
        sys.stdout.flush()
        return
    with open(path, "w", encoding="utf-8") as file:
        yield file
