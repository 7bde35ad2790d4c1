"""How well rankers rank: the losses of this package beside the boosters' own objectives, on generated and on real data.

`python -m benchmarks.quality run` trains and stores, `report` writes tables and pictures, `explore` prints a quick table. A
loss is chosen on one half of the data sets and judged on the other; see `datasets.CHOSEN_ON` and `datasets.JUDGED_ON`.
"""
