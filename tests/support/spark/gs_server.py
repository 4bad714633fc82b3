"""An emulator of Google Cloud Storage on loopback: one bucket, and the environment that Google's own client reads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.local.addresses import own_loopback_address

BUCKET = "lake"
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
