"""`python -m stochasticrank_objectives`: the command line."""

from __future__ import annotations

import sys

from .experiments.cli import main

if __name__ == "__main__":
    sys.exit(main())
