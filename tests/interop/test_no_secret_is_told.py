"""What klamm prints, writes and shows on a secured cluster holds none of the cluster's secrets."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from klamm_program import PROGRAM, Ran, environment, in_process
from secured_kafka import PASSWORDS, SecuredKafka, jaas

from cli.framework.invocation import TargetOptions
from engine.admin.cluster.client_properties import load_properties
from engine.admin.cluster.target import Naming, resolve_target
from engine.kafka.zk.client import ZkClient
from tui.operations.operation import command_text

MARK = "Secr3t"
"""Part of every secret that a test chose; those that Kafka made are read from the znodes."""
KEY_PASSWORD = f"key-{MARK}"
TRUST_PASSWORD = f"trust-{MARK}"
DYNAMIC_PASSWORD = f"dynamic-{MARK}"


@pytest.fixture(scope="module")
def config(kafka: SecuredKafka) -> Path:
    """A client's properties with a secret in every place that can hold one."""
    store = kafka.ca.sign("admin").write_pem(kafka.folder / "admin.pem", KEY_PASSWORD)
    return kafka.client(
        "SAFE",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=jaas("SCRAM-SHA-512", username="admin", password=PASSWORDS["admin"]),
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(store),
        ssl_key_password=KEY_PASSWORD,
        ssl_keystore_password=TRUST_PASSWORD,
        klamm_zookeeper_digest=f"operator:zk-{MARK}",
    )


@pytest.fixture(scope="module")
def secrets(kafka: SecuredKafka, config: Path) -> list[str]:
    """Every secret of the cluster: passwords, what SCRAM keeps of them, and the keys."""

    async def stored() -> list[str]:
        async with await ZkClient.connect(kafka.zookeeper) as client:
            contents = []
            for name in await client.children("/config/users"):
                data, _ = await client.get(f"/config/users/{name}")
                text = data.decode()
                # SCRAM-SHA-256 → salt=…,stored_key=…,server_key=…,iterations=…
                contents += [
                    part.split("=", 1)[1] for part in text.split(",") if part.startswith(("stored_key", "server_key"))
                ]
            return contents

    kept = asyncio.run(stored())
    assert len(kept) == 8, "two users, two mechanisms, two keys"
    key = (kafka.folder / "admin.pem").read_text().splitlines()[1]
    return [MARK, PASSWORDS["alice"], key, *kept]


READ = (
    ("topics", "list"),
    ("topics", "describe", "orders"),
    ("brokers", "list"),
    ("brokers", "describe"),
    ("brokers", "log-dirs"),
    ("cluster", "describe"),
    ("cluster", "health"),
    ("configs", "describe", "--topic", "orders", "--all"),
    ("configs", "describe", "--broker", "0", "--all"),
    ("configs", "describe", "--entity-type", "users"),
    ("configs", "describe", "--entity-type", "brokers"),
    ("groups", "list"),
    ("lag", "--all-groups"),
    ("offsets",),
    ("reassign", "list"),
    ("doctor",),
    ("acls", "list"),
    ("users", "list"),
    ("quotas", "list"),
    ("tokens", "list"),
    ("transactions", "list"),
    ("consume", "orders", "--until-end"),
    ("exporter", "--once"),
    ("acls", "export"),
    ("brokers", "metrics"),
)
OF_ZOOKEEPER = (
    ("zk", "tree", "--acl"),
    ("zk", "tree", "--raw"),
    ("zk", "get", "/config/users/alice"),
    ("zk", "get", "/config/users/alice", "--raw"),
    ("zk", "get", "/config/brokers/0"),
    ("quotas", "list"),
    ("users", "list"),
    ("cluster", "snapshot", "-"),
)
SCREENS = ("overview", "brokers", "topics", "groups", "plans", "zookeeper")
WRONG = (
    ("topics", "describe", "none"),
    ("configs", "alter", "--broker", "0", "--add-config", f"ssl.key.password={DYNAMIC_PASSWORD}", "--yes"),
    ("topics", "create", "orders"),
)
"""Commands that fail; what they say must not repeat a secret either."""


def test_no_output_holds_a_secret(
    kafka: SecuredKafka,
    config: Path,
    secrets: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = ("-b", kafka.address("SAFE"), "--command-config", config)
    znodes = ("--zookeeper", kafka.zookeeper, "--command-config", config)

    def run(*words: str | Path) -> Ran:
        return in_process(*words, capture=capsys)

    assert run("topics", "create", "orders", "--partitions", "1", *where).code == 0
    (token,) = run("tokens", "create", "-o", "json", *where).json
    secrets = [*secrets, token["hmac"]]
    outputs: dict[str, str] = {}

    def keep(name: str, ran: Ran) -> None:
        outputs[name] = ran.out + ran.err

    alter = ("configs", "alter", "--broker", "0", "--yes", "--add-config")
    keep("dry run", run(*alter, f"ssl.keystore.password={DYNAMIC_PASSWORD}", "--dry-run", "-v", *where))
    for words in READ:
        for style in (("-v",), ("-v", "-o", "json")):
            ran = run(*words, *style, *where)
            assert ran.code in (0, 1), (words, ran.err)
            keep(" ".join((*words, *style)), ran)
    for words in OF_ZOOKEEPER:
        keep(" ".join(words), run(*words, "-v", "-o", "json", *znodes))
    # It prints where an error comes from, too.
    monkeypatch.setenv("KLAMM_DEBUG", "1")
    for words in WRONG:
        keep(" ".join(words[:3]), run(*words, "-v", "-o", "json", *where))
    for user, password in (("admin", f"wrong-{MARK}"), ("nobody", f"no-{MARK}")):
        login = kafka.login("SAFE", "SCRAM-SHA-512", user, password)
        words = ("topics", "list", "-v", "-b", kafka.address("SAFE"), "--command-config", login)
        keep(f"refused {user}", run(*words))
    monkeypatch.delenv("KLAMM_DEBUG")
    snapshot, plan, picture = tmp_path / "snapshot.json", tmp_path / "plan.json", tmp_path / "top.svg"
    keep("snapshot", run("cluster", "snapshot", snapshot, "--sizes", *where))
    # A plan with something to do: two partitions with records lie in the same log dir.
    assert run("topics", "create", "parts", "--partitions", "4", *where).code == 0
    dirs = run("brokers", "log-dirs", "--topic-list", "parts", "-o", "json", *where).json
    placed = [[replica["partition"] for replica in log_dir["replicas"]] for log_dir in dirs]
    for partition in max(placed, key=len)[:2]:
        words = ("produce", "parts", "--partition", str(partition))
        assert in_process(*words, *where, capture=capsys, stdin="x" * 900_000 + "\n").code == 0
    for verb in (("log-dirs", "--out", plan), ("apply", plan, "--yes"), ("status", plan), ("verify", plan)):
        ran = run("plan", *verb, "-v", *where)
        assert ran.code == 0, ran.err
        keep(f"plan {verb[0]}", ran)
    (kafka.folder / "new-password").write_text(f"new-{MARK}\n")
    keep("users set", run("users", "set", "new", "--password-file", kafka.folder / "new-password", "-v", *where))
    profiles = tmp_path / "home" / "klamm" / "clusters.toml"
    profiles.parent.mkdir(parents=True)
    properties = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in load_properties(config).items()]
    head = f'[clusters.safe]\nbootstrap_servers = "{kafka.address("SAFE")}"\n[clusters.safe.properties]\n'
    profiles.write_text(head + "\n".join(properties))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    for words in (("profiles", "list"), ("topics", "list", "--cluster", "safe"), ("doctor", "--cluster", "safe")):
        ran = run(*words, "-v", "-o", "json")
        assert ran.code == 0, ran.err
        keep(" ".join(words), ran)
    profiles.unlink()
    reset = ("groups", "reset-offsets", "--group", "readers", "--topic", "orders", "--execute", "--yes", "-v")
    # Only what was committed before is kept for the way back.
    for more in (("--to-earliest",), ("--to-latest", "--rollback-file", tmp_path / "offsets.csv")):
        keep(f"reset {more[0]}", run(*reset, *more, *where))
    for screen in SCREENS:
        both = (*where, "--zookeeper", kafka.zookeeper)
        keep(f"screenshot {screen}", run("top", "--screen", screen, "--screenshot", picture.with_stem(screen), *both))
    for file in tmp_path.rglob("*"):
        if file.is_file():
            outputs[str(file)] = file.read_text("utf-8", "replace")
    journal = Path(f"{plan}.journal")
    pictures = [picture.with_stem(screen) for screen in SCREENS]
    files = (snapshot, plan, journal, tmp_path / "offsets.csv", *pictures)
    assert all(file.exists() for file in files), [*tmp_path.iterdir()]
    assert {name: secret for name, text in outputs.items() for secret in secrets if secret in text} == {}


def test_no_recording_and_no_command_line_of_a_process_holds_a_secret(
    kafka: SecuredKafka, config: Path, secrets: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "recording"
    words = ["top", "--record", str(file), "-b", kafka.address("SAFE"), "--command-config", str(config)]
    process = subprocess.Popen(
        [PROGRAM, *words], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not file.exists() or file.stat().st_size < 1_000:
            assert process.poll() is None and time.monotonic() < deadline, process.stdout
            time.sleep(0.1)
        outputs = {"cmdline": Path(f"/proc/{process.pid}/cmdline").read_bytes()}
    finally:
        process.send_signal(signal.SIGTERM)
        outputs["output"], _ = process.communicate(timeout=60)
    outputs["recording"] = file.read_bytes()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            outputs[str(path)] = path.read_bytes()
    assert {name: secret for name, text in outputs.items() for secret in secrets if secret.encode() in text} == {}


def test_a_command_that_the_dashboard_copies_names_files_only(
    kafka: SecuredKafka, config: Path, tmp_path: Path
) -> None:
    options = TargetOptions(bootstrap_server=kafka.address("SAFE"), command_config=str(config))
    naming = Naming(bootstrap_servers=options.bootstrap_server, command_config=options.command_config)
    copied = command_text(["topics", "list"], resolve_target(naming, {}, tmp_path))
    assert copied == f"klamm topics list --command-config {config} --bootstrap-server {kafka.address('SAFE')}"
    assert MARK not in copied
