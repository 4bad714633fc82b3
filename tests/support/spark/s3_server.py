"""S3 on loopback, served by moto: one bucket, and the environment that AWS's own tools read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest

BUCKET = "lake"


@contextmanager
def s3_server() -> Iterator[Any]:
    """Yield pyarrow's file system of a store with an empty bucket."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    patch = pytest.MonkeyPatch()
    host, port = server.get_host_and_port()
    patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    patch.setenv("AWS_ACCESS_KEY_ID", "x")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    try:
        store = fs.S3FileSystem(endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True)
        store.create_dir(BUCKET)
        yield store
    finally:
        # The store belongs to the process: the next server would begin with what this one holds.
        urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST"), timeout=10).close()
        server.stop()
        patch.undo()
