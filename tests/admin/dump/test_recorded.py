"""Dumps of the files that Apache Kafka 3.9.1 wrote, line by line against what its own dump tool printed about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.admin.dump.files import DumpOptions, decoder_for, dump_file
from engine.admin.dump.payloads import PayloadDecoder
from engine.admin.dump.rows import Finding, problem_lines, row_line

FIXTURES = Path(__file__).parents[3] / "fixtures"
PREFIX = "/data/kafka/"

PLAIN = DumpOptions()
DATA = DumpOptions(deep_iteration=True, print_data_log=True)
SANITY = DumpOptions(index_sanity_check=True)
OFFSETS = DumpOptions(deep_iteration=True, decoder=PayloadDecoder.OFFSETS)
TRANSACTIONS = DumpOptions(deep_iteration=True, decoder=PayloadDecoder.TRANSACTIONS)

DUMPS = [
    ("clean", "disk/clean/dump/log.txt", DATA),
    ("clean", "disk/clean/dump/index-plain.txt", PLAIN),
    ("clean", "disk/clean/dump/timeindex.txt", PLAIN),
    ("clean", "disk/clean/dump/txnindex.txt", PLAIN),
    ("clean", "disk/clean/dump/snapshot.txt", PLAIN),
    ("running", "records/running/index.txt", SANITY),
    ("clean", "records/clean/index.txt", SANITY),
    ("clean", "records/clean/offsets.txt", OFFSETS),
    ("clean", "records/clean/transactions.txt", TRANSACTIONS),
    ("formats-mixed", "disk/formats-mixed/dump/log.txt", DATA),
    ("formats-mixed", "disk/formats-mixed/dump/index-plain.txt", PLAIN),
    ("formats-mixed", "disk/formats-mixed/dump/timeindex.txt", PLAIN),
    ("formats-mixed", "disk/formats-mixed/dump/snapshot.txt", PLAIN),
    ("formats-mixed", "records/formats-mixed/index.txt", SANITY),
    ("formats-mixed", "records/formats-mixed/offsets.txt", OFFSETS),
    ("formats-v0-v1-v2", "disk/formats-v0-v1-v2/dump/log.txt", DATA),
    ("formats-v0-v1-v2", "disk/formats-v0-v1-v2/dump/index-plain.txt", PLAIN),
    ("formats-v0-v1-v2", "disk/formats-v0-v1-v2/dump/timeindex.txt", PLAIN),
    ("formats-v0-v1-v2", "disk/formats-v0-v1-v2/dump/snapshot.txt", PLAIN),
]


def recorded(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the lines per file, and what was on stderr."""
    output, _, problems = text.partition("# stderr\n")
    parts = output.split(f"Dumping {PREFIX}")[1:]
    return {part.split("\n", 1)[0]: part.rstrip("\n").split("\n")[1:] for part in parts}, problems.splitlines()


def our_dump(path: Path, options: DumpOptions) -> tuple[list[str], list[str]]:
    lines, findings = [], []
    for row in dump_file(path, options):
        line = row_line(row, path, decoder_for(path, options))
        if line is not None:
            lines.append(line)
        if isinstance(row, Finding):
            findings.append(row)
    return lines, list(problem_lines(path, findings))


def cases() -> Iterator[tuple[Path, Path, DumpOptions]]:
    for folder, dump, options in DUMPS:
        yield FIXTURES / "disk" / folder / "data", FIXTURES / dump, options


@pytest.mark.parametrize(("data_dir", "dump", "options"), list(cases()), ids=[dump for _, dump, _ in DUMPS])
def test_every_line_is_as_kafkas_tool_prints_it(data_dir: Path, dump: Path, options: DumpOptions) -> None:
    expected, expected_problems = recorded(dump.read_text(encoding="utf-8"))
    problems: list[str] = []
    compared = 0
    for name, lines in expected.items():
        path = data_dir / name
        if not path.exists():
            continue
        ours, our_problems = our_dump(path, options)
        assert [line.replace(str(data_dir) + "/", PREFIX) for line in ours] == lines, name
        problems += [line.replace(str(data_dir) + "/", PREFIX) for line in our_problems]
        compared += 1
    assert compared
    assert sorted(problems) == sorted(expected_problems)


@pytest.mark.parametrize("folder", ["clean", "formats-mixed", "formats-v0-v1-v2"])
def test_all_files_of_a_recorded_log_dir_can_be_dumped(folder: str) -> None:
    """Every kind of file is there, and a faulty one would be reported."""
    seen = set()
    for path in sorted((FIXTURES / "disk" / folder / "data").rglob("*")):
        if not path.is_file() or path.name == "stray.txt":
            continue
        rows = list(dump_file(path, DATA))
        assert not [row for row in rows if isinstance(row, Finding) and row.finding in ("corrupt", "undecodable")], path
        seen |= {row.kind for row in rows}
    assert {"segment", "batch", "record", "time_index_entry", "offset_checkpoint", "property"} <= seen
