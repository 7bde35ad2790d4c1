"""`python -m stochasticrank_objectives demo`: the embedded example."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors in input are one line and exit code 2."""
    parser = argparse.ArgumentParser(prog="stochasticrank", description="Rankers trained on the metric that is reported.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train the three boosters on generated data, beside their own objectives")
    demo.add_argument("--picture", default="demo.png", help="where the learning curves go (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        from . import demo as job

        job.run(chosen.picture)
    except (ValueError, ImportError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
