"""The table of APIs and header versions. A look into it imports no messages."""

from __future__ import annotations

import subprocess
import sys

import pytest
from protocol_oracles import oracles_for

from engine.kafka.protocol.api_keys import API_SPECS, ApiKey, request_header_version, response_header_version
from engine.kafka.protocol.declaration import request_class, response_class


def test_every_key_has_a_row_and_both_classes() -> None:
    assert list(API_SPECS) == list(ApiKey)
    for key, spec in API_SPECS.items():
        assert spec.key is key
        request, response = request_class(key), response_class(key)
        assert (request.api_key, response.api_key) == (key, key)
        assert request.flexible_since == response.flexible_since == spec.flexible_since


def test_nothing_is_declared_outside_the_table() -> None:
    for key, spec in API_SPECS.items():
        for cls in (request_class(key), response_class(key)):
            for declared in cls.wire_fields:
                assert spec.min_version <= declared.since <= spec.max_version, (cls, declared.name)


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_every_version_of_every_message_has_an_oracle(key: ApiKey) -> None:
    spec = API_SPECS[key]
    for version in range(spec.min_version, spec.max_version + 1):
        assert oracles_for(request_class(key), version)
        assert oracles_for(response_class(key), version)


def test_plain_numbers_find_their_row() -> None:
    assert API_SPECS[3].name == "Metadata"
    assert API_SPECS[ApiKey.METADATA].module == "engine.kafka.protocol.apis.metadata"


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.ALLOCATE_PRODUCER_IDS, 0, 2, 1),
    ],
)
def test_header_versions(key: ApiKey, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


def test_headers_and_table_load_no_message_and_no_heavy_library() -> None:
    program = (
        "import sys, engine.kafka.protocol.frames\n"
        "names = [n for n in sys.modules if n.startswith('engine.kafka.protocol.apis.')]\n"
        "names += [n for n in ('asyncio', 'crc32c', 'cramjam', 'dataclasses', 'socket', 'uuid') if n in sys.modules]\n"
        "print(names)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
