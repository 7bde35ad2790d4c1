"""`python -m benchmarks.quality [run|defaults|time|report|explore]`: without a word, run the whole study and report."""

from __future__ import annotations

import argparse
import pathlib
import sys

from . import datasets
from .objectives import BOOSTERS, METRICS
from .running import plan, run_all


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=["run", "defaults", "time", "report", "explore"], help="default: run, then report"
    )
    parser.add_argument("--data", type=pathlib.Path, help="folder of MQ2008 and its like; without it they are left out")
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--sets", type=_list, help="such as noisy-500,MQ2008; default: all")
    parser.add_argument("--boosters", type=_list, default=list(BOOSTERS))
    parser.add_argument("--objectives", action="append", help="own, variants, recommended, name:METRIC or an expression")
    parser.add_argument("--replicates", type=int, default=2, help="tasks per generated data set")
    parser.add_argument("--rates", type=_list, help="learning rates; default: two per booster")
    parser.add_argument("--again", action="store_true", help="run, defaults, time: also what is stored")
    parser.add_argument("--ours", default="recommended", help="report: the objective that is compared with the own ones")
    parser.add_argument("--variants", action="store_true", help="report, explore: own objectives with options are own ones")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("docs/quality"), help="report: where to write")
    parser.add_argument("--metric", choices=METRICS, default="ndcg@10", help="explore: the metric of the table")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; the exit code is 1 if a training failed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    every = datasets.CHOSEN_ON + datasets.JUDGED_ON
    sets = options.sets or [name for name in every if datasets.available(name, options.data)]
    for given, known, what in ((sets, None, "data set"), (options.boosters, BOOSTERS, "booster")):
        wrong = [one for one in given if (not datasets.exists(one) if known is None else one not in known)]
        if wrong:
            parser.error(f"there is no {what} {', '.join(wrong)}; there are {', '.join(known or every)}")
    failed = 0
    if options.what in (None, "run"):
        rates = None if options.rates is None else [float(rate) for rate in options.rates]
        specs = options.objectives or ["own", "recommended"]
        cells = plan(sets, options.boosters, specs, replicates=options.replicates, rates=rates)
        failed = run_all(cells, options.data, jobs=options.jobs, again=options.again)
    if options.what == "defaults":
        from . import defaults

        chosen = [name for name in options.sets or defaults.SETS if datasets.available(name, options.data)]
        boosters, replicates = options.boosters, options.replicates
        keywords = {"replicates": replicates, "jobs": options.jobs, "again": options.again}
        failed = defaults.measure(chosen, boosters, options.data, **keywords)
        page = defaults.page(list(dict.fromkeys([*defaults.SETS, *chosen])))
        (options.output / "defaults.md").write_text(page)
        print(page)
    if options.what == "time":
        from . import timing

        timing.measure(sets, options.boosters, options.data, options.again)
        timing.show(sets)
    if options.what in (None, "report"):
        from .report import write

        write(options.ours, options.output, sets=options.sets or every, boosters=options.boosters, variants=options.variants)
    if options.what == "explore":
        from .report import explore

        explore(options.boosters, options.metric, options.sets or every, options.objectives, options.variants)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
