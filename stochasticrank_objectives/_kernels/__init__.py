"""Everything that numba compiles, and `policy`, which says how. It imports nothing of the package but `_constants`."""
