"""Logins by signed tokens and by certificates on a real Apache Kafka, and who klamm says this is."""

from __future__ import annotations

import asyncio
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from klamm_program import Ran, in_process
from patience import within
from rights_story import CHANGING, READING, Cell, RightsStory, check_login
from secured_kafka import FIRST_PORT, SecuredKafka, jaas
from test_secured_kafka import WRONG, is_on_page
from token_provider import CLIENT_ID, CLIENT_SECRET, Issuer, token

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import Naming, resolve_target

Run = Callable[..., Ran]
LIST = ("topics", "list", "-o", "json")


@pytest.fixture
def run(kafka: SecuredKafka, capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(listener: str, config: Path, *words: str) -> Ran:
        return in_process(*words, "-b", kafka.address(listener), "--command-config", config, capture=capsys)

    return ran


@pytest.fixture
def issuer(kafka: SecuredKafka, tmp_path: Path) -> Iterator[Issuer]:
    token_issuer = Issuer(kafka.host, FIRST_PORT + 60)
    # A process keeps the tokens of each address.
    token_issuer.url += tmp_path.name
    thread = threading.Thread(target=token_issuer.server.serve_forever)
    thread.start()
    yield token_issuer
    token_issuer.server.shutdown()
    thread.join()
    token_issuer.server.server_close()


def token_file(kafka: SecuredKafka, issuer: Issuer) -> Path:
    return kafka.folder / f"{issuer.url.rpartition('/')[2]}.jwt"


def token_login(kafka: SecuredKafka, issuer: Issuer, source: str, **options: str) -> Path:
    """Write the properties of who logs in by a token from a provider, a file or a command."""
    file = token_file(kafka, issuer)
    file.write_text(token(now=int(time.time()), **issuer.claims))
    by_source = {
        "provider": {"sasl_oauthbearer_token_endpoint_url": issuer.url},
        "file": {"sasl_oauthbearer_token_endpoint_url": file.as_uri()},
        "command": {"klamm_oauthbearer_token_command": f"cat {file}"},
    }
    credentials = {"clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET, "scope": "kafka", **options}
    config = jaas("OAUTHBEARER", **(credentials if source == "provider" else {}))
    return kafka.client("SIGNED", sasl_mechanism="OAUTHBEARER", sasl_jaas_config=config, **by_source[source])


@pytest.mark.parametrize("source", ["provider", "file", "command"])
def test_a_signed_token_logs_in_and_names_its_subject(
    source: str, issuer: Issuer, run: Run, kafka: SecuredKafka
) -> None:
    admin = kafka.client("PLAINTEXT")
    run("PLAINTEXT", admin, "topics", "create", f"signed-{source}", "--partitions", "1")
    issuer.claims = {"sub": f"{source} service"}
    config, asked = token_login(kafka, issuer, source), ("topics", "describe", f"signed-{source}", "-o", "json")
    refused = run("SIGNED", config, *asked)
    assert (refused.code, refused.error["principal"]) == (4, f"User:{source} service"), refused.err
    added = run("PLAINTEXT", admin, *shlex.split(refused.error["hint"].partition("klamm ")[2]))
    assert added.code == 0, added.err
    is_in_time = within(20)
    while (ran := run("SIGNED", config, *asked)).code:
        assert is_in_time(), ran.err
    assert len(issuer.given) == (source == "provider"), "a token is used until it is about to expire"


REFUSED_TOKENS = {
    "another audience": ({"aud": "others"}, {}, "invalid_token"),
    "expired": ({"iat": -100, "exp": -40}, {}, "invalid_token"),
    "another secret": ({}, {"clientSecret": WRONG}, "refuses with 401 (invalid_client)"),
    "another scope": ({}, {"scope": "all"}, "refuses with 400 (invalid_scope)"),
}


@pytest.mark.parametrize("what", REFUSED_TOKENS)
def test_what_a_refused_token_says(what: str, issuer: Issuer, run: Run, kafka: SecuredKafka) -> None:
    issuer.claims, options, said = REFUSED_TOKENS[what]
    sources = ["provider"] if options else ["provider", "file", "command"]
    for source in sources:
        ran = run("SIGNED", token_login(kafka, issuer, source, **options), *LIST, "--timeout", "20")
        message = f"{ran.error['message']} | {ran.error['hint']}"
        print(what, source, "→", message)
        assert (ran.code, ran.error["kind"], said in message) == (3, "authentication", True), message
        assert is_on_page(ran.error["message"]), message
        assert "Secr3t" not in ran.out + ran.err


@pytest.mark.parametrize("source", ["provider", "file", "command"])
def test_a_token_that_was_refused_is_not_sent_again(source: str, issuer: Issuer, run: Run, kafka: SecuredKafka) -> None:
    issuer.claims = {"aud": "others"}
    config = token_login(kafka, issuer, source)
    assert run("SIGNED", config, *LIST).code == 3
    issuer.claims = {}
    token_file(kafka, issuer).write_text(token(now=int(time.time())))
    again = run("SIGNED", config, *LIST)
    assert again.code == 0, again.err


@pytest.mark.parametrize("source", ["provider", "file", "command"])
def test_a_long_command_logs_in_again_with_a_new_token(
    source: str, issuer: Issuer, run: Run, kafka: SecuredKafka
) -> None:
    """A login ends with its token, so the connection outlives its first one only by the next."""
    topic = f"tokens-{source}"
    issuer.claims = {"sub": "admin", "exp": 3}
    config = token_login(kafka, issuer, source)
    stopped = threading.Event()

    def renew() -> None:
        while not stopped.wait(1):
            new = kafka.folder / "new.jwt"
            new.write_text(token(now=int(time.time()), **issuer.claims))
            new.replace(token_file(kafka, issuer))

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        made = run("SIGNED", config, "topics", "create", topic, "--partitions", "1")
        assert made.code == 0, made.err
        ran = run(
            "SIGNED", config, "perf", "producer", "--topic", topic, "--num-records", "70", "--record-size", "10",
            "--throughput", "10", "-v", "-o", "json",
        )  # fmt: skip
    finally:
        stopped.set()
        renewing.join()
    assert ran.code == 0, ran.err
    assert "lost" not in ran.err and ran.err.count("connected to") <= 2, ran.err
    assert source != "provider" or len(issuer.given) >= 3


def key_store(kafka: SecuredKafka, name: str, kind: str = "JKS") -> dict[str, str]:
    """Return properties with a store of a certificate for this name; Java's keytool makes those of kind JKS."""
    store = kafka.folder / f"{name}.{kind}"
    if not store.exists():
        certificate = kafka.ca.sign(name)
        write = certificate.write_jks if kind == "JKS" else certificate.write_pkcs12
        write(store, "store-Secr3t")
    return {
        "ssl_keystore_type": kind,
        "ssl_keystore_location": str(store),
        "ssl_keystore_password": "store-Secr3t",
        "ssl_key_password": "store-Secr3t",
    }


class CertificateStory(RightsStory):
    """The users of the cells show certificates from PKCS12 stores, and those of the first case from Java's own: each of
    those takes a JVM.
    """

    kafka: SecuredKafka

    def principal(self, cell: Cell) -> str:
        return f"User:CN={cell.user}"

    def config_of(self, cell: Cell) -> Path:
        kind = "JKS" if cell.case == READING[0] else "PKCS12"
        return self.kafka.client("MUTUAL", **key_store(self.kafka, cell.user, kind))


@pytest.fixture(scope="module")
def story(kafka: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> RightsStory:
    folder, cells = tmp_path_factory.mktemp("rights"), map(Cell, (*READING, *CHANGING))
    certificate_story = CertificateStory(folder, kafka.address("PLAINTEXT"), kafka.address("MUTUAL"), cells)
    certificate_story.kafka = kafka
    return certificate_story


@pytest.mark.parametrize("case", [*READING, *CHANGING])
def test_commands_work_for_a_certificate_with_its_rights(
    case: str, story: RightsStory, own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # For the others, who logs in by Kerberos types rules.
    check_login(story, case, capsys, types_rules=case in READING)


def test_a_certificate_that_the_listener_does_not_ask_for_names_nobody(kafka: SecuredKafka) -> None:
    store = key_store(kafka, "admin")

    async def principal_at(listener: str) -> tuple[str | None, str | None]:
        config = str(kafka.client(listener, **store))
        naming = Naming(bootstrap_servers=kafka.address(listener), command_config=config)
        async with Cluster(resolve_target(naming, {}, kafka.folder)) as cluster:
            before = cluster.principal
            await (await cluster.wire()).metadata([])
            return before, cluster.principal

    assert asyncio.run(principal_at("MUTUAL")) == ("User:CN=admin", "User:CN=admin")
    assert asyncio.run(principal_at("TLS")) == ("User:CN=admin", "User:ANONYMOUS")
