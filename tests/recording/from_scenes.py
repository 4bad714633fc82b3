"""Makes the fixtures that are cut from recorded scenes: znodes, trees, frames, controller, logs, tools' effects.

Each function takes the scenes, by ``cluster/scene``, and the folder to write to.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from log_shapes import shape

from engine.kafka.zk.known_znodes import known_znode

FIXTURES = Path(__file__).parents[2] / "fixtures"
_OF_ONE_RUN = re.compile(r'(?<="id":")[\w-]{22}(?=")|(?<="topic_id":")[\w-]{22}(?=")|(?<="timestamp":")\d{13}(?=")')
Scene = dict[str, Any]
Scenes = Mapping[str, Scene]

_IS_LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (\w+) ")
CONTROLLER_SCENES = (
    "01-first-broker-starts", "03-topic-created", "04-topic-created-manual", "06-partitions-added",
    "11-preferred-election-znode", "12-legacy-reassignment-znode", "14-topic-deleted", "23-controller-znode-deleted",
)  # fmt: skip
CONTROLLER_FRAMES = (
    "ibp-2.6/02-topic-created", "ibp-2.6/05-reassignment", "ibp-2.6/07-topic-deleted", "main/01-first-broker-starts",
    "main/03-topic-created", "main/07a-reassignment-under-way", "main/14-topic-deleted", "main/26-unclean-election",
)  # fmt: skip
WRITES = (
    "main/01-first-broker-starts", "main/03-topic-created", "main/05-topic-config-altered", "main/06-partitions-added",
    "main/12-legacy-reassignment-znode", "main/14-topic-deleted", "main/31-client-quotas", "ibp-2.6/03-isr-shrinks",
)  # fmt: skip
TREES_OF = {
    "reassignment-under-way": "main/07a-reassignment-under-way",
    "leaderless": "main/25-leaderless",
    "deletion-waits": "main/28-deletion-waits-for-a-dead-broker",
    "dynamic-configs": "main/32b-password-and-logger",
    "secure": "secure/05-delegation-tokens",
}
EFFECTS_OF = {
    "03-topic-created": ["t1"], "04-topic-created-manual": ["manual"], "05-topic-config-altered": ["t1"],
    "06-partitions-added": ["t1"], "07a-reassignment-under-way": ["move"], "07b-reassignment-finishes": ["move"],
    "08-reassignment-cancelled": ["move"], "09-reassignment-order-only": ["t1"], "10-preferred-election-api": ["t1"],
    "11-preferred-election-znode": ["t1"], "12-legacy-reassignment-znode": ["manual"], "14-topic-deleted": ["manual"],
    "32-dynamic-broker-config": [],
}  # fmt: skip
LOGS_OF = {
    "broker-killed": ("15-broker-killed", (0, 1)), "leaderless": ("25-leaderless", (0, 2)),
    "unclean-election": ("26-unclean-election", (0, 2)), "topic-deleted": ("14-topic-deleted", (0, 1, 2)),
}  # fmt: skip
CONTROLLERS_OWN = ("LeaderAndIsr", "StopReplica", "UpdateMetadata")
BETWEEN_BROKERS = (
    *CONTROLLERS_OWN, "AllocateProducerIds", "AlterPartition", "AlterPartitionReassignments", "ControlledShutdown",
    "ElectLeaders", "OffsetForLeaderEpoch", "WriteTxnMarkers",
)  # fmt: skip
FRAMES_OF_A_KIND = 5


def load_scenes(folder: Path) -> dict[str, Scene]:
    """Read what `recorded_kafka` kept, in the order in which it happened."""
    files = sorted(folder.glob("*/*.json"))
    return {f"{file.parent.name}/{file.stem}": json.loads(file.read_text()) for file in files}


def _write_lines(path: Path, rows: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


# ZooKeeper


def make_trees(scenes: Scenes, out: Path) -> None:
    """Keep the whole tree after a scene, with the ids and times of the tree that is there."""
    for name, scene in TREES_OF.items():
        text = "".join(json.dumps(znode) + "\n" for znode in scenes[scene]["tree"])
        (out / f"{name}.jsonl").write_text(_with_ids_of(FIXTURES / "trees" / f"{name}.jsonl", text), "utf-8")


def _with_ids_of(before: Path, text: str) -> str:
    """Put ids and times of an older recording in the place of the new ones: what was made of it stays as it is."""
    old = {row["path"]: row["data"] or "" for row in map(json.loads, before.read_text("utf-8").splitlines())}
    for row in map(json.loads, text.splitlines()):
        for new, kept in zip(
            _OF_ONE_RUN.findall(row["data"] or ""), _OF_ONE_RUN.findall(old.get(row["path"], "")), strict=False
        ):
            text = text.replace(new, kept)
    return text


def make_znodes(scenes: Scenes, out: Path) -> None:
    """Keep one znode of each shape of content, and all writes of some scenes."""
    rows: list[dict[str, Any]] = []
    for name in WRITES:
        rows.append({"scene": name, "note": scenes[name]["note"]})
        rows += [_without_defaults(write) for write in scenes[name]["writes"] if not write["op"].endswith("Session")]
    _write_lines(out / "writes.jsonl", rows)
    effects: dict[tuple[str, str], dict[str, str]] = {}
    for name, scene in scenes.items():
        for path, data in _contents(scene["writes"]):
            known = known_znode(path)
            if known is not None and data is not None:
                kind = (known.znode_class.__name__, _shape_of(path, data))
                effects.setdefault(kind, {"scene": name, "path": path, "data": data})
    _write_lines(out / "recorded.jsonl", sorted(effects.values(), key=lambda row: (row["path"], row["scene"])))


def _contents(writes: list[dict[str, Any]]) -> Iterable[tuple[str, str | None]]:
    """What Kafka wrote, not the recorder by hand."""
    for write in (write for write in writes if write["by"] != "recorder"):
        for op in [write, *write.get("ops", [])]:
            if op["op"] in ("create", "setData"):
                yield op["path"], op["data"]


def _shape_of(path: str, data: str) -> str:
    """What a content is made of: the keys and types of JSON, and for settings and their like whose they are."""
    try:
        content = json.loads(data)
    except ValueError:
        return ""
    owner = re.sub(r"\d+", "N", path) if path.startswith(("/config/", "/kafka-acl")) else ""
    return owner + json.dumps(_skeleton(content))


def _skeleton(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub(r"\d+", "N", key): _skeleton(each) for key, each in value.items()}
    return [_skeleton(value[0])] if isinstance(value, list) and value else type(value).__name__


def _without_defaults(write: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in write.items() if key != "zxid" and (key, value) != ("ephemeral", False)}
    if "ops" in kept:
        kept["ops"] = [_without_defaults(op) for op in kept["ops"]]
    return kept


def make_controller(scenes: Scenes, out: Path) -> None:
    """Keep the controller's requests with their answers, and what it wrote."""
    for name in CONTROLLER_SCENES:
        scene = scenes[f"main/{name}"]
        head = {"scene": name, "note": scene["note"], "cluster": "main"}
        _write_lines(out / "writes" / f"{name}.jsonl", [head, *scene["writes"]])
    rows = []
    for name in CONTROLLER_FRAMES:
        pairs = _pairs(name, scenes[name]["frames"])
        kinds: dict[tuple[str, int], int] = defaultdict(int)
        for request, response in pairs:
            kind = (request["api"], request["version"])
            kinds[kind] += 1
            if request["api"] in CONTROLLERS_OWN and kinds[kind] <= 2:
                rows += [request, response]
    keys = ("scene", "dir", "api", "key", "version", "client", "broker", "correlation", "hex")
    _write_lines(out / "frames.jsonl", ({key: row[key] for key in keys} for row in rows))


def make_tool_effects(scenes: Scenes, out: Path) -> None:
    """Keep what stands in ZooKeeper of the topics concerned, of brokers' settings and below ``/admin``."""
    for name, topics in EFFECTS_OF.items():
        scene = scenes[f"main/{name}"]
        effects = [
            json.loads(data or "{}") for path, data in _contents(scene["writes"]) if path.startswith("/config/changes/")
        ]
        named = "|".join(map(re.escape, topics)) or "$"
        kept = re.compile(rf"/brokers/topics/({named})(/.*)?|/config/topics/({named})|/config/brokers/.*|/admin/.*")
        znodes = {znode["path"]: _parsed(znode["data"]) for znode in scene["tree"] if kept.fullmatch(znode["path"])}
        lines = ",\n".join(f"  {json.dumps(path)}: {json.dumps(data)}" for path, data in znodes.items())
        head = {"note": scene["note"], "topics": topics, "config_changes": [row["entity_path"] for row in effects]}
        text = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
        (out / f"{name}.json").write_text(f'{{\n{text} "znodes": {{\n{lines}\n }}\n}}\n', "utf-8")


def _parsed(data: str | None) -> Any:
    return json.loads(data) if data and data.startswith("{") else data or None


# Frames


def _pairs(scene: str, frames: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Requests with their answers. A connection that began again repeats correlation ids: of those the last counts."""
    requests: dict[tuple[Any, ...], dict[str, Any]] = {}
    pairs_found: dict[tuple[Any, ...], tuple[dict[str, Any], dict[str, Any]]] = {}
    for frame in frames:
        frame = {**frame, "scene": scene}
        key = (frame["client"], frame["broker"], frame["correlation"])
        if frame["dir"] == "request":
            requests[key] = frame
        elif key in requests and requests[key]["api"] == frame["api"]:
            pairs_found[key] = (requests[key], frame)
    return list(pairs_found.values())


def make_frames(scenes: Scenes, out: Path) -> None:
    """Keep of every API, version and direction a few frames from the smallest to the largest."""
    kinds: dict[tuple[str, int, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    for name, scene in scenes.items():
        for frame in scene["frames"]:
            if _is_between_brokers(frame):
                kind = (frame["api"], frame["version"], frame["dir"])
                kinds[kind].setdefault(len(frame["hex"]), {**frame, "scene": name})
    keys = ("scene", "api", "key", "version", "dir", "correlation", "client", "hex")
    rows = [frame for _, by_size in sorted(kinds.items()) for frame in _spread(by_size)]
    _write_lines(out / "between-brokers-kafka-3.9.1.jsonl", ({key: row[key] for key in keys} for row in rows))


def _is_between_brokers(frame: dict[str, Any]) -> bool:
    if frame["api"] in ("Fetch", "ApiVersions"):
        return bool(re.fullmatch(r"\d+|broker-\d+-fetcher-\d+", frame["client"]))
    return frame["api"] in BETWEEN_BROKERS


def _spread(by_size: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    sizes = sorted(by_size)
    steps = min(FRAMES_OF_A_KIND, len(sizes))
    places = {round(step * (len(sizes) - 1) / max(steps - 1, 1)) for step in range(steps)}
    return [by_size[sizes[place]] for place in sorted(places)]


# Logs


def make_state_changes(scenes: Scenes, out: Path) -> None:
    """Keep what brokers added to their state-change.log in a scene."""
    for folder, (scene, brokers) in LOGS_OF.items():
        for broker_id in brokers:
            path = out / folder / f"broker-{broker_id}" / "state-change.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(scenes[f"main/{scene}"]["logs"][f"broker-{broker_id}/state-change.log"], "utf-8")


def make_log_shapes(scenes: Scenes, out: Path) -> None:
    """Keep the shape of each line once."""
    topics = {
        znode["path"].rpartition("/")[2]
        for scene in scenes.values()
        for znode in scene["tree"]
        if re.fullmatch(r"/brokers/topics/[^/]+", znode["path"])
    }
    for log, left_out in (("state-change", ("TRACE", "DEBUG")), ("controller", ("TRACE",))):
        shapes = set()
        for name, scene in scenes.items():
            for file, text in scene["logs"].items():
                if file.endswith(f"/{log}.log") and name.startswith("main/"):
                    shapes |= {
                        shape(line, topics) for line in text.splitlines() if _level(line) not in (None, *left_out)
                    }
        (out / f"{log}.txt").write_text("".join(line + "\n" for line in sorted(shapes)), "utf-8")


def _level(line: str) -> str | None:
    matched = _IS_LINE.match(line)
    return None if matched is None else matched[1]


MAKERS = {
    "controller": make_controller,
    "frames": make_frames,
    "log-shapes": make_log_shapes,
    "state-changes": make_state_changes,
    "tool-effects": make_tool_effects,
    "trees": make_trees,
    "znodes": make_znodes,
}
