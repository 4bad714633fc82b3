"""``klamm spark package``: the code that executors need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.spark.shared import group
from cli.framework.invocation import Invocation
from cli.output.report import Column, Kind, Report, Table


@group.command(
    "package",
    examples=(
        "klamm spark package --out klamm-spark.zip",
        "spark-submit --master yarn --py-files klamm-spark.zip my_job.py",
    ),
)
def package(
    invocation: Invocation,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The archive; replaced if it exists.")] = Path(
        "klamm-spark.zip"
    ),
) -> Report:
    """Write the archive with klamm's code for Spark's executors.

    Give it to spark-submit with --py-files, or to a session with addPyFile. Executors need pyarrow and numpy, as
    PySpark does, but not klamm. The commands of this group, and register() in a program, do this by themselves.
    """
    from engine.spark.archive import write_archive

    files = write_archive(out)
    size = out.stat().st_size
    columns = (Column("path"), Column("files", Kind.NUMBER), Column("size_bytes", Kind.NUMBER))
    row = {"path": str(out), "files": files, "size_bytes": size}
    return Report(row, Table(columns, [tuple(row.values())]))
