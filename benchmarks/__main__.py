"""`python -m benchmarks [section ...] [--quick]`: print the tables, write benchmarks/results.json."""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib

from .harness import machine

SECTIONS = ("native", "iteration", "growth", "limit", "startup")
RESULTS = pathlib.Path(__file__).with_name("results.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"some of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small data, to see that everything runs; writes no results")
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {', '.join(sorted(unknown))}: choose from {', '.join(SECTIONS)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    print("  ".join(f"{name}: {value}" for name, value in machine().items()))
    for section in arguments.sections or SECTIONS:
        results[section] = importlib.import_module(f".{section}", __package__).run(arguments.quick)
        results["machine"] = machine()
        if not arguments.quick:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
