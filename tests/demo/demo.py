"""``make demo``: an operator's round from end to end, on a fresh machine, with nothing left behind.

It uses a real Apache ZooKeeper, four of our brokers, the CLI as a user types it, and librdkafka (confluent-kafka) as
client. Each step prints the command it runs, so that the demo teaches. Exit code 0 means that every record came back.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from confluent_kafka import KafkaException
from demo_records import (
    DEADLINE_S,
    PARTITIONS,
    RECORDS,
    TOPIC,
    DemoFailed,
    Digest,
    Load,
    check_read,
    produce,
    read_as_group,
)

ARCHIVE = "archive"
ARCHIVED = 20_000
ARCHIVE_LINE = "the castle above the village, and the road that does not lead to it, "
THROTTLE = 250_000
"""Bytes per second: at this rate the archive moves for some seconds, so that there is something to see."""
KLAMM = str(Path(sys.executable).with_name("klamm"))
GROUP = "billing"
PLAN = "plan.json"
JOB = "spark-job"
TABLE = ("--output", "table")


def say(text: str) -> None:
    """Print a headline."""
    print(f"\n\033[1m▌ {text}\033[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def klamm(
    *words: str,
    show: bool = True,
    code: int = 0,
    until_says: str | None = None,
    stdin: str = "",
    lines_max: int | None = None,
) -> str:
    """Run a klamm command as a user would and return its stdout, unless a terminal got it.

    It must exit with ``code``. With ``until_says`` it is repeated until it does so and says that, as an operator would
    do. Of a long output only the last ``lines_max`` lines are shown.
    """
    if show:
        print(f"$ klamm {shlex.join(words)}", flush=True)
    goes_to_terminal = show and until_says is None and lines_max is None and sys.stdout.isatty()
    environment = os.environ | {"COLUMNS": str(shutil.get_terminal_size().columns)} if sys.stdout.isatty() else None
    deadline = time.monotonic() + DEADLINE_S
    while True:
        done = subprocess.run(
            [KLAMM, *words], input=stdin, stdout=None if goes_to_terminal else subprocess.PIPE, text=True,
            timeout=DEADLINE_S, check=False, env=environment,
        )  # fmt: skip
        said = done.stdout or ""
        if done.returncode == code and (until_says or "") in said:
            break
        if until_says is None or time.monotonic() > deadline:
            raise DemoFailed(f"klamm {shlex.join(words)} ended with code {done.returncode}")
        time.sleep(0.2)
    if show:
        show_end(said.rstrip().splitlines(), lines_max)
    return said


def show_end(lines: list[str], lines_max: int | None) -> None:
    """Print the last lines."""
    left_out = 0 if lines_max is None else max(0, len(lines) - lines_max)
    if left_out:
        print(f"  … {left_out} lines before these …")
    for line in lines[left_out:]:
        print(line, flush=True)


def steps(recording: Path) -> None:
    """The demo itself. ``recording`` receives the dashboard's frames."""
    say("A real ZooKeeper and four brokers, on this machine; the dashboard watches and records")
    klamm("local", "up", "--brokers", "4", "--detach")
    with watched(recording):
        round_of_an_operator()


@contextmanager
def watched(recording: Path) -> Iterator[None]:
    """Record what the dashboard would show."""
    recording.parent.mkdir(exist_ok=True)
    recording.unlink(missing_ok=True)
    words = [KLAMM, "top", "--record", str(recording)]
    recorder = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield
    finally:
        recorder.terminate()
        _, said = recorder.communicate(timeout=DEADLINE_S)
    if not recording.exists():
        raise DemoFailed(f"the dashboard recorded nothing: {said}")


def round_of_an_operator() -> None:
    """A broker is lost and retired, a group repaired, and the logs read."""
    status = json.loads(klamm("local", "status", "--output", "json", show=False))
    bootstrap, zookeeper = status["bootstrap_servers"], ("--zookeeper", status["zookeeper"])
    digest = fill(bootstrap)
    say("The topic as ZooKeeper's live metadata describes it")
    klamm("topics", "describe", TOPIC, *zookeeper, *TABLE)
    led_by_1 = partition_led_by(1)
    sent = RECORDS + lose_a_broker(bootstrap, digest)
    check_read(bootstrap, sent, digest)
    give_leadership_back()
    with spark_job(bootstrap) as job:
        retire_a_broker()
        check_read(bootstrap, sent, digest)
        mend_a_group(bootstrap)
        watch_a_spark_job(job, sent)
    look_back(zookeeper, led_by_1)


def fill(bootstrap: str) -> Digest:
    """Create a topic and send records; return their digest."""
    say("A topic: six partitions on four brokers, a write counts when two have it")
    klamm(
        "topics", "create", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3",
        "--config", "min.insync.replicas=2",
    )  # fmt: skip
    say(f"{RECORDS:,} orders sent by librdkafka (idempotent, acks=all, lz4), and every one read back")
    begin = time.monotonic()
    digest = produce(bootstrap)
    print(f"  {RECORDS:,} records acknowledged in {time.monotonic() - begin:.1f} s, digest {digest}")
    check_read(bootstrap, RECORDS, digest)
    return digest


def lose_a_broker(bootstrap: str, digest: Digest) -> int:
    """Kill a broker while a producer writes, and bring it back; return how many records were sent meanwhile."""
    say("kill -9 under load: broker 1 dies while a producer writes")
    with Load(bootstrap, digest) as load:
        klamm("local", "kill", "1")
        klamm("cluster", "health", *TABLE, code=1, until_says="under_replicated_dead_broker")
        klamm("topics", "describe", "--under-replicated-partitions", "--exclude-internal", *TABLE)
        klamm("local", "start", "1")
        klamm("cluster", "health", "--wait", "--timeout", "60", *TABLE)
    print(f"  {load.sent:,} records were acknowledged meanwhile")
    return load.sent


def give_leadership_back() -> None:
    """Elect the preferred leaders."""
    say("Leadership goes back where it belongs: first a look, then the election")
    klamm("elect", "preferred", "--topic", TOPIC, "--dry-run", *TABLE)
    klamm("elect", "preferred", "--all-topic-partitions", "--yes", "--quiet", *TABLE, lines_max=8)
    klamm("cluster", "load", *TABLE)


def retire_a_broker() -> None:
    """Empty broker 3 by the smallest plan, in throttled waves, and prove that nothing was lost."""
    say("Broker 3 retires: the smallest plan that empties it, checked, and carried out in waves")
    klamm("topics", "create", ARCHIVE, "--replica-assignment", "3:1,3:2,1:3,2:3")
    lines = "".join(f"{number} {ARCHIVE_LINE}\n" for number in range(ARCHIVED))
    klamm("produce", ARCHIVE, stdin=lines)
    klamm(
        "plan", "decommission", "3", "--aim", "replicas,leaders", "--throttle", str(THROTTLE), "--out", PLAN, *TABLE,
        lines_max=40,
    )  # fmt: skip
    klamm("plan", "check", PLAN, *TABLE)
    klamm("plan", "apply", PLAN, "--yes", *TABLE)
    klamm("plan", "verify", PLAN, *TABLE, lines_max=8)
    klamm("local", "stop", "3")
    klamm("replicas", "verify", *TABLE, lines_max=12)
    archived = klamm("consume", ARCHIVE, "--from-beginning", "--max-messages", str(ARCHIVED), show=False)
    if sorted(int(line.split()[0]) for line in archived.splitlines()) != list(range(ARCHIVED)):
        raise DemoFailed(f"not all of {ARCHIVED} archived records came back")
    print(f"  {ARCHIVED:,} records read from where they are now")


def mend_a_group(bootstrap: str) -> None:
    """Let a consumer stop half-way, find out, and skip what it missed."""
    say("A consumer group has stopped half-way: who is behind, and since when?")
    read_as_group(bootstrap, GROUP, RECORDS // 2)
    klamm("lag", "--group", GROUP, "--interval", "0.5", *TABLE, code=1)
    say("Its offsets are set to the end: first a look, then for good, with a file that leads back")
    reset = ("groups", "reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-latest")
    klamm(*reset, *TABLE)
    klamm(*reset, "--execute", "--yes", "--quiet", *TABLE)
    klamm("groups", "describe", "--group", GROUP, *TABLE)
    klamm("lag", "--group", GROUP, *TABLE)


@contextmanager
def spark_job(bootstrap: str) -> Iterator[subprocess.Popen[str]]:
    """Start a streaming query, which reads orders during other steps, but more slowly than they were sent."""
    words = [sys.executable, str(Path(__file__).with_name("demo_job.py")), bootstrap, TOPIC, JOB, str(RECORDS // 25)]
    with (
        Path(f"{JOB}.log").open("w") as log,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as job,
    ):
        try:
            yield job
        finally:
            job.terminate()


def watch_a_spark_job(job: subprocess.Popen[str], sent: int) -> None:
    """Read the lag of the query from its checkpoint, while it is behind and when it has caught up."""
    say("A Spark Structured Streaming job reads the orders too: how far behind is it, seen from outside?")
    print("  (a query of this PySpark with klamm's own Kafka source, which was started before)")
    wait_for_batches(job, 5)
    lag = ("lag", "--checkpoint", f"{JOB}/checkpoint", *TABLE)
    klamm(*lag)
    say("It is stopped, goes on where its checkpoint says, without a limit, and catches up")
    counted, _ = job.communicate("go on\n", timeout=DEADLINE_S)
    if job.returncode:
        raise DemoFailed(f"the Spark job ended with code {job.returncode}: {job_log()}")
    klamm(*lag)
    print(f"  {int(counted):,} records in its Parquet")
    if int(counted) != sent:
        raise DemoFailed(f"the Spark job wrote {int(counted)} of {sent} records")


def wait_for_batches(job: subprocess.Popen[str], count: int) -> None:
    """Wait until the query has finished this many batches."""
    deadline = time.monotonic() + DEADLINE_S
    while not Path(JOB, "checkpoint", "commits", str(count - 1)).exists():
        if job.poll() is not None or time.monotonic() > deadline:
            raise DemoFailed(f"the Spark job did nothing: {job_log()}")
        time.sleep(0.1)


def job_log() -> str:
    """Return the end of the Spark job's output."""
    return Path(f"{JOB}.log").read_text("utf-8", "replace")[-500:]


def partition_led_by(broker: int) -> int:
    """Return a partition of the topic that a broker leads."""
    (topic,) = json.loads(klamm("topics", "describe", TOPIC, "--output", "json", show=False))
    return next(int(partition["partition"]) for partition in topic["partitions"] if partition["leader"] == broker)


def look_back(zookeeper: tuple[str, str], partition: int) -> None:
    """Read in the brokers' logs what happened, and whether all is well now."""
    say("What happened? The state-change logs of all brokers, in one order")
    klamm("state-changes", "merge", ".klamm", "--topic", TOPIC, "--partition", str(partition), *TABLE, lines_max=30)
    klamm("state-changes", "check", ".klamm", *zookeeper, "--fail-on", "critical", *TABLE)
    say("And is all well now?")
    klamm("cluster", "health", *TABLE)


def main() -> int:
    """Run the demo in a temporary folder; end and remove everything, even after Ctrl-C and TERM."""
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="klamm-demo-"))
    begin = time.monotonic()
    home = Path.cwd()
    recording = home / "build" / "demo.recording"
    try:
        # The CLI finds the cluster that was started in its current folder.
        os.chdir(folder)
        steps(recording)
    except (DemoFailed, KafkaException, subprocess.TimeoutExpired) as error:
        print(f"error: the demo failed: {error}\nhint: {_log_ends(folder)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: ending what was started", file=sys.stderr)
        return 130
    finally:
        # A second Ctrl-C, or one that the terminal sends to all of us, must not leave brokers behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        down = [KLAMM, "local", "down", "--quiet"]
        subprocess.run(down, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        os.chdir(home)
        shutil.rmtree(folder, ignore_errors=True)
    say(f"Done in {time.monotonic() - begin:.0f} s; nothing is left running")
    print(f"See it again in the dashboard: {_from_here(KLAMM, home)} top --replay {_from_here(recording, home)}")
    return 0


def _from_here(path: str | Path, home: Path) -> str:
    """Return a path as a user types it in the folder ``home``."""
    return shlex.quote(str(Path(path).relative_to(home) if Path(path).is_relative_to(home) else path))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _log_ends(folder: Path) -> str:
    """Return the last lines of the brokers' output, because the files are gone in a moment."""
    ends = []
    for log in sorted(folder.glob(".klamm/broker-*/logs/server.log")):
        ends += [f"{log.parent.parent.name}: {line}" for line in log.read_text("utf-8", "replace").splitlines()[-5:]]
    return "\n  ".join(["the last lines of the brokers' logs:", *ends])


if __name__ == "__main__":
    sys.exit(main())
