"""``klamm dump``: files of a log dir decoded. Options are those of kafka-dump-log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.framework.options import Needs

if TYPE_CHECKING:
    from engine.admin.cluster.errors import AdminError


@single_command(
    "dump",
    needs=Needs(bounded=False, streams=True, kafka=True),
    examples=(
        "klamm dump data/orders-0/00000000000000000000.log --print-data-log",
        "klamm dump data/orders-0 -o jsonl | jq 'select(.kind == \"finding\")'",
        "klamm dump data/recovery-point-offset-checkpoint data/meta.properties",
    ),
)
def command(
    invocation: Invocation,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", allow_dash=True, help="Files, or folders whose files are all dumped."),
    ] = None,
    files: Annotated[str | None, typer.Option("--files", metavar="A,B", help="Files, as in kafka-dump-log.")] = None,
    deep_iteration: Annotated[bool, typer.Option("--deep-iteration", help="Show records, not only batches.")] = False,
    print_data_log: Annotated[bool, typer.Option("--print-data-log", help="Show keys and values too.")] = False,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Read records as those of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Read records as those of __transaction_state.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Compare indexes with their log, show only what is wrong.")
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option(
            "--index-sanity-check", help="Show only the result of the check that a broker makes when it starts."
        ),
    ] = False,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", metavar="N", min=1, help="Read only this much of each segment.")
    ] = None,
) -> ExitCode:
    """Decode segments, indexes, producer snapshots, checkpoints and the small files of a log dir.

    The lines are those of kafka-dump-log 3.9, on a terminal with readable times; -o jsonl has a row per line. Records
    of __consumer_offsets and __transaction_state are decoded by the name of their folder. Exits with 1 when a file is
    damaged. If a file is missing or is not one of Kafka's, it dumps the others, names that file and exits with 2.
    """
    from cli.views.dump import DumpPrinter
    from engine.admin.dump.files import DumpOptions, decoder_for, dump_file, files_to_dump
    from engine.admin.dump.payloads import PayloadDecoder

    wanted = [*(paths or ()), *(Path(name.strip()) for name in (files or "").split(",") if name.strip())]
    if Path("-") in wanted:
        raise UsageError("klamm dump needs real files: their names say what they are, so - cannot be stdin")
    if not wanted:
        raise UsageError("name the files to dump")
    if offsets_decoder and transaction_log_decoder:
        raise UsageError("--offsets-decoder and --transaction-log-decoder exclude each other")
    decoder = PayloadDecoder.OFFSETS if offsets_decoder else None
    if transaction_log_decoder:
        decoder = PayloadDecoder.TRANSACTIONS
    options = DumpOptions(deep_iteration, print_data_log, decoder, verify_index_only, index_sanity_check, max_bytes)
    printer = DumpPrinter(invocation.output, invocation.talk)
    failures: list[AdminError] = []
    for path in wanted:
        with _noted(failures):
            for file in files_to_dump(path):
                with _noted(failures):
                    printer.print_file(file, decoder_for(file, options), dump_file(file, options))
    printer.end()
    return invocation.tell_failures(failures, ExitCode.BAD_ANSWER if printer.is_damaged else ExitCode.DONE)


@contextmanager
def _noted(failures: list[AdminError]) -> Iterator[None]:
    """Note that a file cannot be dumped, so that the others still are."""
    from engine.admin.cluster.errors import AdminError

    try:
        yield
    except AdminError as error:
        failures.append(error)
