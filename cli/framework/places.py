"""Options that name what Spark queries and brokers leave behind; the profile of a cluster may name it, too."""

from __future__ import annotations

from typing import Annotated

import typer

Checkpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        metavar="PLACE",
        help="A Spark checkpoint, a folder of them, a pattern or a URI; may be repeated.",
    ),
]
EventLogs = Annotated[
    list[str] | None,
    typer.Option(
        "--event-log", metavar="PLACE", help="Spark event logs, or files of klamm's listener; may be repeated."
    ),
]
StateChangeLogs = Annotated[
    list[str] | None,
    typer.Option(
        "--logs", metavar="FILE|FOLDER", help="State-change logs of brokers, or folders of them; may be repeated."
    ),
]
MetricsUrl = Annotated[
    str | None,
    typer.Option(
        "--metrics-url",
        metavar="URL",
        help="Where each broker serves its metrics: http://{host}:7071/metrics, http://{host}:8778/jolokia, "
        "jmx://{host}:9999 or jmxs://USER:${env:PASSWORD}@{host}:9999; {id} is its id.  "
        "[default: what the profile or the broker says]",
    ),
]
