"""The command of ``klamm plan`` that makes the same plan. Pure."""

from __future__ import annotations

from pathlib import Path

from plans.options import PlanOptions, Strategy


def making_words(
    strategy: Strategy, options: PlanOptions, out: Path | None = None, capacity_file: Path | None = None
) -> list[str]:
    """Return the words that make a plan with these options; none if the file of its capacities is unknown."""
    if capacity_file is None and (options.broker_capacities or options.log_dir_capacities):
        return []
    words = ["plan", strategy.value, *_argument(strategy, options)]
    if options.aim is not None:
        words += ["--aim", ",".join(options.aim)]
    for option, values in (
        ("--topic", options.topics),
        ("--exclude-topic", options.exclude_topics),
        ("--exclude-broker", options.exclude_brokers),
        ("--pin", options.pins),
    ):
        for value in values:
            words += [option, str(value)]
    for option, number in (
        ("--minimise", options.minimise),
        ("--max-moves", options.max_moves),
        ("--max-bytes", options.max_bytes),
        ("--throttle", options.throttle),
        ("--time-limit", options.time_limit_s),
    ):
        words += [] if number is None else [option, str(number)]
    if options.tolerance_percent != PlanOptions().tolerance_percent:
        words += ["--tolerance", f"{options.tolerance_percent:g}"]
    words += ["--keep-dead"] if options.keep_dead else []
    words += [] if capacity_file is None else ["--capacity", str(capacity_file)]
    return words + ([] if out is None else ["--out", str(out)])


def _argument(strategy: Strategy, options: PlanOptions) -> list[str]:
    brokers = ",".join(map(str, options.brokers))
    match strategy:
        case Strategy.DECOMMISSION | Strategy.EXPAND:
            return [brokers]
        case Strategy.REPLACE:
            return [",".join(f"{one.old}={one.new}" for one in options.replacements)]
        case Strategy.FACTOR:
            return [str(options.replication_factor)]
        case Strategy.MOVE:
            return ["--brokers", brokers]
        case Strategy.LOG_DIRS:
            return [word for broker in options.brokers for word in ("--broker", str(broker))]
    return []
