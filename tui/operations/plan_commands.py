"""The command of ``klamm plan`` that makes the same plan, or carries it out in the same way. Pure."""

from __future__ import annotations

from pathlib import Path

from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.plan_runs import PlanRun, Verb
from plans.options import PlanOptions, Strategy
from tui.operations.operation import repeated


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
        words += repeated(option, values)
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
            return [",".join(f"{replacement.old}={replacement.new}" for replacement in options.replacements)]
        case Strategy.FACTOR:
            return [str(options.replication_factor)]
        case Strategy.MOVE:
            return ["--brokers", brokers]
        case Strategy.LOG_DIRS:
            return [word for broker in options.brokers for word in ("--broker", str(broker))]
    return []


def running_words(run: PlanRun, verb: Verb | None = None) -> list[str]:
    """Return the words that carry out a plan as ``run`` does, or continue it with another verb."""
    usual = PlanRun(run.verb, run.path, run.digest, run.moves)
    words = ["plan", (verb or run.verb).value, str(run.path), *(_throttle_words(run.throttle) if run.throttle else [])]
    for option, value, default in (
        ("--wave-replicas", run.caps.replicas, usual.caps.replicas),
        ("--wave-bytes", run.caps.size_bytes, None),
        ("--stall", f"{run.stall_s:g}s", f"{usual.stall_s:g}s"),
        ("--lock-timeout", f"{run.lock_timeout_s:g}s", f"{usual.lock_timeout_s:g}s"),
        ("--journal", run.journal_file, usual.journal_file),
    ):
        words += [] if value in (default, None) else [option, str(value)]
    return words if run.elects else [*words, "--no-elect"]


def _throttle_words(limits: ThrottleRange) -> list[str]:
    usual = ThrottleRange.of(limits.start)
    words = ["--throttle", str(limits.start)]
    words += [] if limits.floor == usual.floor else ["--throttle-floor", str(limits.floor)]
    words += [] if limits.ceiling == usual.ceiling else ["--throttle-ceiling", str(limits.ceiling)]
    return words + ([] if limits.p99_limit_s is None else ["--throttle-p99", f"{1000 * limits.p99_limit_s:g}ms"])
