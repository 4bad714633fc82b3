"""Stores on loopback, each with one bucket and the environment that its own client reads: S3, and Google's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest

from engine.local.addresses import own_loopback_address

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


PLACE = f"gs://anonymous@{BUCKET}"
"""The bucket, for somebody who has no credentials."""

_PORT = 9023
_PROGRAM = """\
import sys

from gcp_storage_emulator.server import create_server

with create_server(sys.argv[1], int(sys.argv[2]), in_memory=True, default_bucket=sys.argv[3]):
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def gs_server() -> Iterator[Any]:
    """Yield pyarrow's file system of a store with an empty bucket. The server is a process of its own."""
    from pyarrow import fs

    host = own_loopback_address()
    command = [sys.executable, "-c", _PROGRAM, host, str(_PORT), BUCKET]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as process, pytest.MonkeyPatch.context() as patch:  # type: ignore[call-overload]
        assert process.stdout.readline() == b"ready\n"
        patch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://{host}:{_PORT}")
        try:
            yield fs.GcsFileSystem(anonymous=True, endpoint_override=f"{host}:{_PORT}", scheme="http")
        finally:
            process.kill()
