"""The file ``local.json``: what runs in a local cluster's folder, so that a later command finds it again.

Processes are named by pid and start time: a reused pid is never taken for ours. ``zookeeper`` and ``bootstrap_servers``
are what a tool needs to reach the cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.common.errors import OperationError
from engine.common.model import address_text
from engine.local.local_broker import LocalBrokerSpec, write_private
from engine.local.processes import ProcessId

FILE_NAME = "local.json"


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster as it was last started.

    Attributes:
        zookeeper: ``host:port``, with the chroot if there is one.
        fsync: whether ZooKeeper flushes its transaction log before each answer.
        settings: of every broker.
        command_config: the properties with which its administrator connects; None: the cluster is not secured.
        brokers: how each is started, and its process if it was running.
    """

    zookeeper: str
    zookeeper_process: ProcessId | None
    fsync: bool
    settings: Mapping[str, str]
    brokers: Mapping[int, tuple[LocalBrokerSpec, ProcessId | None]]
    command_config: str | None = None

    def write(self, directory: Path) -> None:
        """Replace the folder's file; a reader sees the old one or the new one."""
        document = {
            "zookeeper": self.zookeeper,
            "bootstrap_servers": ",".join(address_text(spec.host, spec.port) for spec, _ in self.brokers.values()),
            "dir": str(directory),
            "command_config": self.command_config,
            "zookeeper_process": _process_json(self.zookeeper_process),
            "fsync": self.fsync,
            "settings": dict(self.settings),
            "brokers": [_broker_json(spec, process) for spec, process in self.brokers.values()],
        }
        unfinished = directory / f"{FILE_NAME}.{os.getpid()}"
        write_private(unfinished, json.dumps(document, indent=2) + "\n")
        unfinished.replace(directory / FILE_NAME)

    @classmethod
    def read(cls, directory: Path) -> ClusterRecord:
        """Read the folder's file.

        Raises:
            OperationError: there is none, or it is not one.
        """
        path = directory / FILE_NAME
        try:
            document = json.loads(path.read_text("utf-8"))
            brokers = [_broker(entry, directory) for entry in document["brokers"]]
            return cls(
                document["zookeeper"],
                _process(document["zookeeper_process"]),
                document.get("fsync", True),
                document["settings"],
                {spec.id: (spec, process) for spec, process in brokers},
                document.get("command_config"),
            )
        except FileNotFoundError as error:
            raise OperationError(f"no local cluster runs in {directory}", hint="start one: klamm local up") from error
        except (ValueError, KeyError, TypeError) as error:
            hint = "remove it, end its processes by hand, then: klamm local up"
            raise OperationError(f"not the record of a local cluster: {path}", hint=hint) from error


def _process_json(process: ProcessId | None) -> dict[str, int] | None:
    return None if process is None else {"pid": process.pid, "start_ticks": process.start_ticks}


def _process(document: Mapping[str, int] | None) -> ProcessId | None:
    return None if document is None else ProcessId(document["pid"], document["start_ticks"])


def _broker_json(spec: LocalBrokerSpec, process: ProcessId | None) -> dict[str, Any]:
    return {
        "id": spec.id,
        "host": spec.host,
        "port": spec.port,
        "rack": spec.rack,
        "log_dirs": [str(path) for path in spec.log_dirs],
        "overrides": dict(spec.overrides),
        "command": list(spec.command),
        "process": _process_json(process),
    }


def _broker(entry: Mapping[str, Any], directory: Path) -> tuple[LocalBrokerSpec, ProcessId | None]:
    spec = LocalBrokerSpec(
        entry["id"],
        entry["host"],
        entry["port"],
        broker_directory(directory, entry["id"]),
        entry["rack"],
        len(entry["log_dirs"]),
        entry["overrides"],
        tuple(entry["command"]),
    )
    return spec, _process(entry["process"])


def broker_directory(directory: Path, broker_id: int) -> Path:
    """Return the folder of one broker in a cluster's folder."""
    return directory / f"broker-{broker_id}"
