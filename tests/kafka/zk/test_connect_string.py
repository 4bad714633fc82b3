"""The text of ``zookeeper.connect`` taken apart."""

from __future__ import annotations

import pytest

from engine.common.errors import ConfigError
from engine.kafka.zk.connect_string import normalized_chroot, server_addresses, split_connect_string


def test_connect_strings_are_taken_apart() -> None:
    assert split_connect_string("a:1,b:2/x/y") == ("a:1,b:2", "/x/y")
    assert split_connect_string("a:1") == ("a:1", "")
    assert split_connect_string(" a:1, b:2/x") == ("a:1,b:2", "/x")
    for text in ("", "/chroot", "a:port", "a:99999", "a,,b", "a..b:1", "a" * 64):
        with pytest.raises(ConfigError, match=r"HOST:PORT"):
            split_connect_string(text)


def test_a_chroot_has_one_spelling() -> None:
    assert [normalized_chroot(path) for path in ("", "/", "/x/", "x//y")] == ["", "", "/x", "/x/y"]


def test_the_servers_are_addresses() -> None:
    assert server_addresses("a:1, b:2/x") == [("a", 1), ("b", 2)]
    assert server_addresses("a/x") == [("a", 2181)], "ZooKeeper's own port"
