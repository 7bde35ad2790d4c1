"""Speed, measured: `python -m benchmarks` prints tables and writes benchmarks/results.json."""
