"""Which kernels serve a metric, by its family: modules with functions of the same names, imported when they are needed."""

from __future__ import annotations

from types import ModuleType


def value_kernels(family: str) -> ModuleType:
    """With `value_range` and `make_value_scratch`."""
    if family == "selected":
        from ._kernels import selected

        return selected
    if family == "concordant":
        from ._kernels import concordance

        return concordance
    from ._kernels import values

    return values


def gradient_kernels(family: str, terms: int) -> ModuleType:
    """With `ccs`, `logistic_ccs` and `reinforce`, for a metric of so many terms."""
    if family == "selected":
        from ._kernels import selected

        return selected
    if family == "concordant":
        from ._kernels import concordance

        return concordance
    if terms > 1:
        from ._kernels import sums

        return sums
    from ._kernels import gradients

    return gradients
