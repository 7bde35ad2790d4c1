"""Results on disk: one JSON file per data set, an object with a record per cell, one per line."""

from __future__ import annotations

import json
import os
import pathlib

from .cells import Record

RESULTS = pathlib.Path(__file__).with_name("results")


def read(name: str, folder: pathlib.Path = RESULTS) -> dict[str, Record]:
    """All records of a data set by their keys."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def add(name: str, records: dict[str, Record], folder: pathlib.Path = RESULTS) -> None:
    """Add records; the file is replaced in one step, so that stopping at any time leaves a whole one."""
    every = {**read(name, folder), **records}
    lines = [f"{json.dumps(key)}: {json.dumps(every[key], separators=(',', ':'))}" for key in sorted(every)]
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{name}.json.{os.getpid()}"
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    os.replace(new, folder / f"{name}.json")
