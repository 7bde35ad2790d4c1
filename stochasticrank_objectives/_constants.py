"""What both sides of a kernel must agree on: the codes and borders that Python passes and compiled code compares with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PLAIN, CASCADE, AVERAGE = 0, 1, 2
"""The factor F of a metric: 1; the product of (1 - g) over the documents before; 1 + the relevant ones among them."""

WORST, BEST, MEAN = 0, 1, 2
"""How documents with equal scores are ranked."""

SMOOTHING, LANGEVIN, GUMBEL, LOGISTIC, UNIFORM = 1, 2, 3, 4, 5
"""What noise is for: scores under StochasticRank, gradients under SGLB, scores under LambdaMART, scores under YetiRank,
gains under XENDCG. Each has its own."""

FAST_FROM = 250
"""Documents that can jump, from which on the fast Gauss transform is faster than summing directly."""
