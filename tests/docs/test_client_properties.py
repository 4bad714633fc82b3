"""The properties that the guide to secured clusters shows are ones that the client takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from certificates import Authority
from doc_pages import DOCS, fenced_blocks

from engine.admin.cluster.client_properties import client_properties, unknown_keys
from engine.kafka.client.tls.context import client_context
from engine.kafka.config.properties import parse_properties

BLOCKS = fenced_blocks(DOCS / "guides" / "connect-to-a-secured-cluster.md", "properties")
FOLDERS = ("/home/me", "/etc/kafka")
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="my-user" password="Secr3t";'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the blocks name, as the guide says to make them."""
    folder = tmp_path_factory.mktemp("me")
    authority = Authority()
    (folder / "ca.pem").write_text(authority.pem, "utf-8")
    authority.sign("me").write_pem(folder / "me.pem")
    (folder / "jaas").mkdir()
    (folder / "jaas" / "sasl.jaas.config").write_text(LOGIN, "utf-8")
    return folder


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_each_block_is_understood(block: str, folder: Path) -> None:
    for shown in FOLDERS:
        block = block.replace(shown, str(folder))
    entries = parse_properties(block.encode("latin-1", "replace").decode("latin-1"))
    assert unknown_keys(entries) == {}
    properties = client_properties(entries, "the guide", {"KEY_PASSWORD": "", "SECRET": "Secr3t"})
    assert properties.security_protocol.name == entries.get("security.protocol", "PLAINTEXT")
    if properties.security.sasl is not None:
        assert properties.security.sasl.mechanism == entries["sasl.mechanism"]
    if properties.security.tls is not None:
        client_context(properties.security.tls)


def test_all_mechanisms_are_shown() -> None:
    shown = {parse_properties(block).get("sasl.mechanism") for block in BLOCKS}
    assert shown >= {"PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"}
