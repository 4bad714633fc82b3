"""Named clusters on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import check_json
from klamm_program import in_process

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_profiles(own_folder: Path) -> Path:
    return own_folder / "klamm" / "clusters.toml"


def test_added_listed_chosen(capsys: Capture, own_profiles: Path) -> None:
    empty = in_process("profiles", "list", "-o", "json", capture=capsys)
    assert (empty.code, empty.json) == (0, [])
    assert str(own_profiles) in empty.err
    dry = in_process("profiles", "add", "dev", "--zookeeper", "z:2181", "--dry-run", "-o", "json", capture=capsys)
    assert (dry.code, own_profiles.exists()) == (0, False)
    assert dry.json == {"name": "dev", "result": "would_be_added"}
    places = ("--checkpoint", "/srv/a", "--checkpoint", "s3://lake/c*", "--event-log", "/srv/events")
    assert in_process("profiles", "add", "dev", "--zookeeper", "z:2181/kafka", *places, capture=capsys).code == 0
    marks = ("--label", "the shop", "--colour", "red", "--logs", "/var/log/kafka")
    marks += ("--metrics", "jmx://me:secret@{host}:9999", "--jaas-config", "/etc/jaas.conf")
    prod = in_process("profile", "add", "prod", "--bootstrap-server", "b:1", "--read-only", *marks, capture=capsys)
    assert prod.code == 0
    chosen = in_process("profiles", "default", "prod", "-o", "json", capture=capsys)
    check_json("profiles changes", chosen)
    assert (chosen.code, chosen.json) == (0, {"name": "prod", "result": "default"})
    assert in_process("profiles", "list", "-o", "json", capture=capsys).json == [
        {
            "name": "dev",
            "default": False,
            "zookeeper": "z:2181/kafka",
            "bootstrap_servers": None,
            "read_only": False,
            "command_config": None,
            "checkpoints": ["/srv/a", "s3://lake/c*"],
            "event_logs": ["/srv/events"],
            "logs": [],
            "metrics": None,
            "label": None,
            "colour": None,
            "jaas_config": None,
        },
        {
            "name": "prod",
            "default": True,
            "zookeeper": None,
            "bootstrap_servers": "b:1",
            "read_only": True,
            "command_config": None,
            "checkpoints": [],
            "event_logs": [],
            "logs": ["/var/log/kafka"],
            "metrics": "jmx://[redacted]@{host}:9999",
            "label": "the shop",
            "colour": "red",
            "jaas_config": "/etc/jaas.conf",
        },
    ]
    assert "b:1" in in_process("profiles", "list", "-o", "table", capture=capsys).out


def test_a_removed_profile_leaves_the_rest_of_the_file(capsys: Capture, own_profiles: Path) -> None:
    own_profiles.parent.mkdir()
    kept = '# ours\n\n[clusters."a.b"]\nzookeeper = "z:1"  # [clusters.dev]\n'
    gone = '[clusters.dev]\nzookeeper = "z:2"\n# of dev\n\n'
    own_profiles.write_text(f'default = "dev"\n{gone}{kept}')
    dry = in_process("profiles", "remove", "dev", "--dry-run", capture=capsys)
    assert (dry.code, gone in own_profiles.read_text()) == (0, True)
    ran = in_process("profiles", "remove", "dev", "-o", "csv", capture=capsys)
    assert (ran.code, "no profile is the default now" in ran.err) == (0, True)
    assert ran.out.splitlines() == ["name,result", "dev,removed"]
    assert 'zookeeper = "z:1"  # [clusters.dev]' in own_profiles.read_text()
    names = [profile["name"] for profile in in_process("profiles", "list", "-o", "json", capture=capsys).json]
    assert (names, "of dev" in own_profiles.read_text()) == (["a.b"], False)
    assert in_process("profiles", "remove", "dev", capture=capsys).code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "dev"], "needs an address"),
        (["add", "a b", "--zookeeper", "z"], "cannot be called"),
        (["add", "dev", "--bootstrap-server", "nonsense:x"], "not an address"),
        (["add", "dev", "--bootstrap-server", "b:1", "--colour", "pink"], "green, yellow, red, blue"),
        (["default", "absent"], "no profile is called 'absent'"),
    ],
)
def test_what_is_refused(capsys: Capture, words: list[str], message: str) -> None:
    ran = in_process("profiles", *words, capture=capsys)
    assert ran.code == 2
    assert message in ran.err


def test_a_default_that_is_gone_keeps_nobody_from_others_nor_from_choosing_anew(
    capsys: Capture, own_profiles: Path
) -> None:
    """Somebody renames a profile in an editor."""
    own_profiles.parent.mkdir()
    own_profiles.write_text('default = "prod"\n[clusters.new-prod]\nbootstrap_servers = "127.0.0.1:1"\n')
    relies = in_process("topics", "list", "--timeout", "2", capture=capsys)
    assert (relies.code, relies.err.splitlines()[0]) == (
        2, f"error: there is no profile 'prod', which is the default: {own_profiles}",
    )  # fmt: skip
    assert relies.err.splitlines()[1] == "hint: known profiles: new-prod; choose another: klamm profiles default NAME"
    named = in_process("topics", "list", "--cluster", "new-prod", "--timeout", "2", capture=capsys)
    assert (named.code, "127.0.0.1:1" in named.err) == (3, True), named.err
    assert in_process("profiles", "list", "-o", "json", capture=capsys).json[0]["name"] == "new-prod"
    assert in_process("profiles", "default", "new-prod", capture=capsys).code == 0
    assert in_process("topics", "list", "--timeout", "2", capture=capsys).code == 3
