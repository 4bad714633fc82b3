"""Which cluster a command means: the precedence of its names, and what is not allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.profiles import Profile, add_profile, load_profiles, set_default
from engine.admin.cluster.target import ClusterTarget, Naming, Origin, Side, Source, parse_addresses, resolve_target
from engine.admin.records.lines import parse_json_line
from engine.runtime.input_files import read_input


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def profiles_file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "klamm" / "clusters.toml"


def write_profiles(tmp_path: Path, text: str) -> None:
    path = profiles_file(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def write_local(tmp_path: Path) -> None:
    (tmp_path / ".klamm").mkdir()
    record = {"zookeeper": "127.0.0.9:2181", "bootstrap_servers": "127.0.0.9:9092", "dir": "x", "brokers": []}
    (tmp_path / ".klamm" / "local.json").write_text(json.dumps(record))


def resolve(tmp_path: Path, environment: dict[str, str], **naming: str) -> ClusterTarget:
    return resolve_target(Naming(**naming), environment, tmp_path)  # type: ignore[arg-type]


def test_what_is_named_wins_in_this_order(tmp_path: Path, environment: dict[str, str]) -> None:
    with pytest.raises(BadRequest) as nothing:
        resolve(tmp_path, environment)
    assert all(way in str(nothing.value.hint) for way in ("ZooKeeper", "bootstrap servers", "a local cluster"))

    write_profiles(tmp_path, 'default = "dev"\n[clusters.dev]\nzookeeper = "dev:2181/kafka"\n')
    assert resolve(tmp_path, environment).origin is Origin.PROFILE
    write_local(tmp_path)
    assert resolve(tmp_path, environment).origin is Origin.LOCAL
    environment["KLAMM_BOOTSTRAP_SERVER"] = "env:1"
    assert resolve(tmp_path, environment).bootstrap == (("env", 1),)
    named = resolve(tmp_path, environment, zookeeper="z:2181")
    assert (named.origin, named.bootstrap) == (Origin.OPTIONS, ()), "the environment's brokers must not be mixed in"


def test_the_local_cluster_is_read_from_zookeeper_and_changed_by_the_wire(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    write_local(tmp_path)
    target = resolve(tmp_path, environment)
    assert (target.zookeeper, target.bootstrap) == ("127.0.0.9:2181", (("127.0.0.9", 9092),))
    assert (target.reads_from, target.changes_by) == (Side.ZOOKEEPER, Side.WIRE)


@pytest.mark.parametrize(
    ("naming", "source", "may_ask_zookeeper", "may_ask_brokers"),
    [
        ({"zookeeper": "z:1"}, Source.ZOOKEEPER, True, True),
        ({"zookeeper": "z:1", "via": Side.ZOOKEEPER}, Source.ZOOKEEPER, True, False),
        ({"zookeeper": "z:1", "via": Side.WIRE}, Source.WIRE, False, True),
        ({"bootstrap_servers": "b:1"}, Source.WIRE, False, True),
        ({"zookeeper": "z:1", "bootstrap_servers": "b:1"}, Source.ZOOKEEPER, True, True),
        ({"snapshot": "s.json"}, Source.SNAPSHOT, False, False),
    ],
)
def test_who_tells_how_a_cluster_is_and_who_else_may_be_asked(
    tmp_path: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    naming: dict[str, str],
    source: Source,
    may_ask_zookeeper: bool,
    may_ask_brokers: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.json").touch()
    target = resolve(tmp_path, environment, **naming)
    assert target.source is source
    assert (target.may_ask_zookeeper, target.may_ask_brokers) == (may_ask_zookeeper, may_ask_brokers)


@pytest.mark.parametrize(
    ("naming", "reads", "changes"),
    [
        ({"zookeeper": "z:1"}, Side.ZOOKEEPER, Side.ZOOKEEPER),
        ({"bootstrap_servers": "b:1"}, Side.WIRE, Side.WIRE),
        ({"zookeeper": "z:1", "bootstrap_servers": "b:1"}, Side.ZOOKEEPER, Side.WIRE),
        ({"zookeeper": "z:1", "bootstrap_servers": "b:1", "via": Side.WIRE}, Side.WIRE, Side.WIRE),
        ({"zookeeper": "z:1", "bootstrap_servers": "b:1", "via": Side.ZOOKEEPER}, Side.ZOOKEEPER, Side.ZOOKEEPER),
    ],
)
def test_which_side_is_asked(
    tmp_path: Path, environment: dict[str, str], naming: dict[str, str], reads: Side, changes: Side
) -> None:
    target = resolve(tmp_path, environment, **naming)
    assert (target.reads_from, target.changes_by) == (reads, changes)


@pytest.mark.parametrize(
    ("addresses", "protocol", "refused"),
    [
        ("SSL://b:1", "PLAINTEXT", "SSL"),
        ("PLAINTEXT://a:1,sasl_plaintext://b:1", "PLAINTEXT", "SASL_PLAINTEXT"),
        ("SASL_SSL://b:1", "SSL", "SASL_SSL"),
        ("SSL://b:1", "SSL", None),
        ("PLAINTEXT://b:1", "SSL", None),
        ("b:1", "PLAINTEXT", None),
    ],
)
def test_an_address_that_promises_more_than_the_properties_is_refused(
    tmp_path: Path, environment: dict[str, str], addresses: str, protocol: str, refused: str | None
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"security.protocol={protocol}\n")
    naming = {"bootstrap_servers": addresses, "command_config": str(config)}
    if refused is None:
        assert resolve(tmp_path, environment, **naming).bootstrap[-1] == ("b", 1)
        return
    with pytest.raises(BadRequest, match=f"says {refused}://, but security.protocol is {protocol}"):
        resolve(tmp_path, environment, **naming)


def test_naming_two_clusters_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    for two in ({"cluster": "a", "zookeeper": "z:1"}, {"cluster": "a", "snapshot": "s"}):
        with pytest.raises(BadRequest, match="more than one"):
            resolve(tmp_path, environment, **two)
    with pytest.raises(BadRequest, match="needs a ZooKeeper"):
        resolve(tmp_path, environment, bootstrap_servers="b:1", via=Side.ZOOKEEPER)


def test_addresses() -> None:
    assert parse_addresses("a:1,b:2, [::1]:3") == (("a", 1), ("b", 2), ("::1", 3))
    assert parse_addresses("a") == (("a", 9092),)
    assert parse_addresses("PLAINTEXT://a:1,sasl_ssl://[::1]:3,SSL://b") == (("a", 1), ("::1", 3), ("b", 9092))
    for bad in ("", "a:x", "a:0", "a:70000", ",", ":1", "PLAINTEXT://"):
        with pytest.raises(BadRequest):
            parse_addresses(bad)
    with pytest.raises(BadRequest, match="not a Kafka listener: http://a:1"):
        parse_addresses("http://a:1")
    target = ClusterTarget("p", Origin.PROFILE, bootstrap=parse_addresses("[::1]:3,a:1"))
    assert target.title == "profile p ([::1]:3,a:1)"


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    """Editors of Windows begin files with one."""
    path = tmp_path / "clusters.toml"
    path.write_text("\ufeff[clusters.dev]\nzookeeper = 'z:2181'\n", encoding="utf-8")
    assert load_profiles(path).named("dev") == Profile("dev", zookeeper="z:2181")
    path.write_text("\ufeff{}", encoding="utf-8")
    assert read_input(path) == "{}"
    record, _ = parse_json_line('\ufeff{"value": null}'.encode(), 1, 5)
    assert record.value is None


def test_a_link_to_the_profiles_stays_one(tmp_path: Path) -> None:
    """Many keep such files in a repository, with links to them."""
    path = tmp_path / "clusters.toml"
    path.symlink_to(tmp_path / "kept.toml")
    add_profile(load_profiles(path), Profile("dev", zookeeper="z:2181"))
    assert path.is_symlink() and load_profiles(tmp_path / "kept.toml").named("dev") is not None


def test_profiles_are_added_without_losing_what_a_person_wrote(tmp_path: Path) -> None:
    path = tmp_path / "clusters.toml"
    add_profile(load_profiles(path), Profile("dev", zookeeper="z:2181"))
    path.write_text("# mine\n" + path.read_text())
    add_profile(load_profiles(path), Profile("prod.eu", bootstrap_servers="b:1", command_config="/c d", read_only=True))
    profiles = load_profiles(path)
    assert "# mine" in path.read_text()
    assert profiles.default_name == "dev"
    assert profiles.named("prod.eu") == Profile("prod.eu", None, "b:1", "/c d", True, False)
    add_profile(profiles, Profile("login", bootstrap_servers="b:1", jaas_config="/j"))
    assert load_profiles(path).named("login").jaas_config == "/j"
    set_default(profiles, "prod.eu")
    assert load_profiles(path).default_name == "prod.eu"


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (Profile("dev", zookeeper="z"), "exists already"),
        (Profile("a b", zookeeper="z"), "cannot be called"),
        (Profile("new"), "needs an address"),
    ],
)
def test_profiles_that_cannot_be_added(tmp_path: Path, profile: Profile, message: str) -> None:
    path = tmp_path / "clusters.toml"
    add_profile(load_profiles(path), Profile("dev", zookeeper="z:2181"))
    with pytest.raises(BadRequest, match=message) as refused:
        add_profile(load_profiles(path), profile)
    assert refused.value.hint is not None


@pytest.mark.parametrize(
    "text",
    [
        "default = 1",
        "[clusters.a]\nzookeper = 'z'",
        "[clusters.a]\nzookeeper = 1",
        "[clusters.a]\nread_only = 'yes'\nzookeeper = 'z'",
        "[clusters.a]",
        "clusters = []",
        "not toml",
    ],
)
def test_a_bad_profiles_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "clusters.toml"
    path.write_text(text)
    with pytest.raises(BadRequest) as bad:
        load_profiles(path)
    assert str(path) in str(bad.value.where)


def test_an_unknown_profile_lists_the_known_ones(tmp_path: Path, environment: dict[str, str]) -> None:
    write_profiles(tmp_path, '[clusters.dev]\nzookeeper = "z:1"\n')
    with pytest.raises(NotFound) as unknown:
        resolve(tmp_path, environment, cluster="prod")
    assert "dev" in str(unknown.value.hint)


def test_a_client_s_properties(tmp_path: Path, environment: dict[str, str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(BadRequest, match=r"is missing: GSSAPI, Kafka's default without sasl.mechanism, needs it"):
        resolve(tmp_path, environment, bootstrap_servers="b:1", command_config=str(file))
    file.write_bytes(b"\xef\xbb\xbfclient.id=me  \nrequest.timeout.ms=5000\t \n")
    properties = resolve(tmp_path, environment, bootstrap_servers="b:1", command_config=str(file)).client_properties
    assert (properties.client_id, properties.request_timeout_ms) == ("me", 5000)
    with pytest.raises(NotFound):
        resolve(tmp_path, environment, bootstrap_servers="b:1", command_config=str(tmp_path / "no"))


def test_the_environment_s_client_file_goes_to_no_profile_and_no_local_cluster(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=from-environment")
    with_file = {**environment, "KLAMM_COMMAND_CONFIG": str(file)}
    write_profiles(tmp_path, '[clusters.dev]\nzookeeper = "z:1"\n')
    assert resolve(tmp_path, with_file, cluster="dev").client_properties.client_id == "klamm"
    assert resolve(tmp_path, with_file, bootstrap_servers="b:1").client_properties.client_id == "from-environment"
    in_variables = {**with_file, "KLAMM_BOOTSTRAP_SERVER": "b:1"}
    assert resolve(tmp_path, in_variables).client_properties.client_id == "from-environment"


LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"


def write_jaas(path: Path, user: str) -> str:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path.write_text(f'KafkaClient {{ {module} required username="{user}" password="s3cret"; }};', "utf-8")
    return str(path)


def identity(target: ClusterTarget) -> str | None:
    sasl = target.client_properties.security.sasl
    return sasl and sasl.identity


def test_a_login_is_in_the_properties_else_in_the_named_jaas_file_else_in_that_of_kafka_opts(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named, other = write_jaas(tmp_path / "named.conf", "named"), write_jaas(tmp_path / "other.conf", "other")
    file = tmp_path / "client.properties"
    file.write_text(LOGIN)
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={other}")
    brokers = {"bootstrap_servers": "b:1", "command_config": str(file)}
    assert identity(resolve(tmp_path, environment, **brokers)) == "other by PLAIN"
    assert identity(resolve(tmp_path, environment, **brokers, jaas_config=named)) == "named by PLAIN"
    file.write_text(f'{LOGIN}sasl.jaas.config=a.B required username="own" password="s3cret";\n')
    assert identity(resolve(tmp_path, environment, **brokers, jaas_config=named)) == "own by PLAIN"


def test_the_properties_of_a_profile_and_its_jaas_file(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    table = '"security.protocol" = "SASL_PLAINTEXT"\nsasl.mechanism = "PLAIN"\nrequest.timeout.ms = 7000\n'
    write_profiles(tmp_path, f'[clusters.p]\nbootstrap_servers = "b:1"\n[clusters.p.properties]\n{table}')
    with pytest.raises(BadRequest, match=r"sasl\.jaas\.config is missing") as missing:
        resolve(tmp_path, environment, cluster="p")
    assert str(missing.value.where) == "properties of the profile p"
    target = resolve(tmp_path, environment, cluster="p", jaas_config=write_jaas(tmp_path / "j.conf", "me"))
    assert (identity(target), target.client_properties.request_timeout_ms) == ("me by PLAIN", 7000)
    jaas = f'bootstrap_servers = "b:1"\njaas-config = "{write_jaas(tmp_path / "own.conf", "own")}"'
    write_profiles(tmp_path, f"[clusters.p]\n{jaas}\n[clusters.p.properties]\n{table}")
    target = resolve(tmp_path, environment, cluster="p")
    assert (identity(target), target.jaas_file) == ("own by PLAIN", None), "its own file need not be named again"
    named = resolve(tmp_path, environment, cluster="p", jaas_config=str(tmp_path / "j.conf"))
    assert identity(named) == "me by PLAIN"


def test_a_jaas_file_that_cannot_serve_is_named(tmp_path: Path, environment: dict[str, str]) -> None:
    file, jaas = tmp_path / "client.properties", tmp_path / "j.conf"
    brokers = {"bootstrap_servers": "b:1", "jaas_config": str(jaas)}
    with pytest.raises(BadRequest, match="neither client properties nor ZooKeeper use it"):
        resolve(tmp_path, environment, **brokers)
    file.write_text(LOGIN)
    with pytest.raises(BadRequest, match=r"JAAS file cannot be read \(No such file or directory\).*j\.conf"):
        resolve(tmp_path, environment, **brokers, command_config=str(file))
    jaas.write_text('Other { a.B required password="s3cret"; };')
    with pytest.raises(BadRequest, match=r"has no section KafkaClient.*j\.conf"):
        resolve(tmp_path, environment, **brokers, command_config=str(file))
    jaas.write_bytes(b"\xff\xfe")
    with pytest.raises(BadRequest, match=r"is not text.*j\.conf"):
        resolve(tmp_path, environment, **brokers, command_config=str(file))
