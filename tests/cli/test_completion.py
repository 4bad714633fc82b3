"""The Tab key in a real bash, and the requests of zsh and fish: words, options, values, names from the cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from klamm_program import PROGRAM, environment, in_process, klamm
from required_tools import require

from cli.main import main
from engine.local.cluster import LocalCluster

Offer = Callable[..., list[str]]


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offer:
    """Return the suggestions for a line that ends at the cursor, as bash asks for them."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("KLAMM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def ask(line: str, **env: str) -> list[str]:
        asked = {"_KLAMM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        capsys.readouterr()
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
            for name, value in (asked | env).items():
                patch.setenv(name, value)
            main([])
        said = capsys.readouterr()
        assert (end.value.code or 0, said.err) == (0, "")
        return said.out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("klamm to", ["top", "topics", "tokens"]),
        ("klamm kafka-lead", ["kafka-leader-election"]),
        ("klamm brokers l", ["list", "log-dirs"]),
        ("klamm topics describe --unav", ["--unavailable-partitions"]),
        ("klamm topics list -o js", ["json", "jsonl"]),
        ("klamm topics list --via w", ["wire"]),
        ("klamm brokers log-dirs --summary ", ["dir", "broker", "topic"]),
        ("klamm offsets t --time earl", ["earliest", "earliest-local"]),
        ("klamm configs describe --entity-type broker", ["brokers", "broker-loggers"]),
        ("klamm completion f", ["fish"]),
        ("klamm kafka-log-dirs --describe --summ", ["--summary"]),
        ("klamm nonsense --ver", ["--version"]),
        ("klamm topics describe x", []),
    ],
)
def test_words_options_and_values(offered: Offer, line: str, expected: list[str]) -> None:
    assert offered(line) == expected


def test_names_that_the_cluster_knows(
    offered: Offer, live_cluster: LocalCluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = live_cluster.bootstrap_servers
    # A person waits one second for this, which is too short while many tests run.
    monkeypatch.setattr("cli.framework.completing._PATIENCE_S", 20.0)
    made = klamm("topics", "create", topic_name, "-b", where, folder=tmp_path)
    assert made.code == 0, made.err
    assert offered(f"klamm topics describe -b {where} {topic_name[:6]}") == [topic_name]
    assert offered(f"klamm offsets {topic_name[:6]}", KLAMM_BOOTSTRAP_SERVER=where) == [topic_name]
    zookeeper = live_cluster.zookeeper_connect
    assert offered("klamm brokers describe ", KLAMM_ZOOKEEPER=zookeeper) == ["0", "1"]


def test_profiles_are_offered(offered: Offer, tmp_path: Path) -> None:
    for name in ("prod", "pre", "dev"):
        assert klamm("profiles", "add", name, "--bootstrap-server", "h:1", folder=tmp_path).code == 0
    assert offered("klamm topics list --cluster p") == ["pre", "prod"]


@pytest.mark.parametrize("where", ["-b 127.0.0.1:1", "--zookeeper 127.0.0.1:1", "--snapshot absent", "-b nonsense:x"])
def test_a_cluster_that_is_not_there_offers_nothing_and_says_nothing(offered: Offer, where: str) -> None:
    assert offered(f"klamm topics describe {where} o") == []


@pytest.mark.parametrize(
    ("shell", "needle"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "--command klamm")]
)
def test_the_script_of_each_shell(tmp_path: Path, shell: str, needle: str) -> None:
    ran = klamm("completion", shell, folder=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert needle in ran.out
    assert "_KLAMM_COMPLETE" in ran.out


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    ran = in_process("completion", "csh", capture=capsys)
    assert (ran.code, "bash, zsh, fish" in ran.err) == (2, True)


def test_zsh_and_fish_are_answered_in_their_own_form(tmp_path: Path) -> None:
    zsh = klamm(folder=tmp_path, env={"_KLAMM_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "klamm brokers lo"})
    assert '"log-dirs":"' in zsh.out
    asked = {
        "_KLAMM_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": "klamm brokers lo",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    assert klamm(folder=tmp_path, env=asked).out.startswith("log-dirs\t")


def test_in_a_real_bash(tmp_path: Path) -> None:
    require("bash")
    script = tmp_path / "klamm.bash"
    script.write_text(klamm("completion", "bash", folder=tmp_path).out)
    line = "klamm topics describe --under"
    asked = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD=3; "
        'function_name=$(complete -p klamm | sed "s/.*-F \\([^ ]*\\) .*/\\1/"); '
        '"$function_name" klamm; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{PROGRAM.parent}:{environment(tmp_path)['PATH']}"
    ran = subprocess.run(
        ["bash", "--norc", "-c", asked],
        cwd=tmp_path,
        env=environment(tmp_path, PATH=path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["--under-replicated-partitions", "--under-min-isr-partitions"]
