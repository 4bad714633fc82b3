"""Records ``fixtures/disk``, and ``fixtures/records``: what kafka-dump-log says of the log dirs that are there."""

from __future__ import annotations

import shutil
from pathlib import Path

from apache_kafka import run_tool
from disk_scenes import play_disk, play_disk_old

DISK = Path(__file__).parents[2] / "fixtures" / "disk"
SHOWN_AS = "/data/kafka"
FOLDERS = ("clean", "formats-mixed", "formats-v0-v1-v2")
OF_DISK = {
    # Without folders that end in -delete: there the tool fails at indexes without entries.
    "log": ("[!_]*[0-9]/*.log", ("--deep-iteration", "--print-data-log")),
    "index-plain": ("*[0-9]/*.index", ()),
    "timeindex": ("*[0-9]/*.timeindex", ()),
    "txnindex": ("*[0-9]/*.txnindex", ()),
    "snapshot": ("*[0-9]/*.snapshot", ()),
}
OF_RECORDS = {
    "index": ("*/*.index", ("--index-sanity-check",)),
    "offsets": ("__consumer_offsets-0/*.log", ("--deep-iteration", "--offsets-decoder")),
    "transactions": ("__transaction_state-0/*.log", ("--deep-iteration", "--transaction-log-decoder")),
}


def record_records(out: Path, work: Path) -> None:
    """Dump the internal topics and check the indexes."""
    for folder in FOLDERS[:2]:
        _dump(DISK / folder / "data", out / folder, OF_RECORDS, work)
    _dump(DISK / "running" / "data", out / "running", {"index": OF_RECORDS["index"]}, work)


def record_disk(out: Path, work: Path) -> None:
    """Have a broker write the log dirs, and dump all their files."""
    play_disk(out, work)
    play_disk_old(out, work)
    for folder in FOLDERS:
        _dump(out / folder / "data", out / folder / "dump", OF_DISK, work)


def _dump(data: Path, out: Path, dumps: dict[str, tuple[str, tuple[str, ...]]], work: Path) -> None:
    # The tool opens indexes to write, so it gets a copy.
    copy = work / data.parent.name
    shutil.copytree(data, copy, dirs_exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    for name, (pattern, options) in dumps.items():
        files = sorted(str(path) for path in copy.glob(pattern) if path.stat().st_size)
        if not files:
            continue
        ran = run_tool("kafka.tools.DumpLogSegments", *options, "--files", ",".join(files))
        of = f"…all .{pattern.rpartition('.')[2]} files of this folder…"
        words = f"$ kafka-dump-log.sh {' '.join(options)} --files {of}\n# exit {ran.returncode}\n"
        said = "".join(line + "\n" for line in ran.stderr.splitlines() if not line.startswith("log4j:"))
        text = words + ran.stdout + (f"# stderr\n{said}" if said else "")
        (out / f"{name}.txt").write_text(text.replace(str(copy), SHOWN_AS), "utf-8")
