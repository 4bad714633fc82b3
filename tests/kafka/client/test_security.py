"""What a client's properties say about security, and what they lack."""

from __future__ import annotations

import pickle
from base64 import urlsafe_b64decode

import pytest

from engine.common.errors import ConfigError
from engine.common.model import SecurityProtocol
from engine.kafka.client.sasl.exchange import SaslError
from engine.kafka.client.sasl.settings import exchange_for, sasl_settings
from engine.kafka.client.security import PLAINTEXT, security_of
from engine.kafka.config.properties import parse_properties

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s3cret";'
WHOLE = {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN,
         "ssl.truststore.password": "s3cret"}  # fmt: skip


def test_no_secret_shows_and_processes_can_hand_it_on() -> None:
    security = security_of(WHOLE)
    assert (security.protocol, security.sasl and security.sasl.identity) == (
        SecurityProtocol.SASL_SSL,
        "alice by SCRAM-SHA-512",
    )
    assert "s3cret" not in repr(security)
    assert pickle.loads(pickle.dumps(security)) == security


def test_plain_connections_are_the_default() -> None:
    assert security_of({"sasl.mechanism": "PLAIN", "ssl.keystore.location": "/absent"}) == PLAINTEXT


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"security.protocol": "TLS"}, "TLS is not one of PLAINTEXT, SSL"),
        ({"sasl.mechanism": "SCRAM-SHA-1"}, "SCRAM-SHA-1 is not supported"),
        ({"sasl.jaas.config": ""}, "sasl.jaas.config is missing"),
        ({"sasl.jaas.config": "", "sasl.username": "a"}, "sasl.username and sasl.password are librdkafka's keys"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI needs sasl.kerberos.service.name"),
        ({"sasl.jaas.config": "a.B required;"}, "lack username"),
        ({"sasl.jaas.config": 'a.B required username="a";'}, "lack password"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "ftp://x"}, "must begin with"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://x"}, "lack clientId"),
    ],
)
def test_what_is_missing(entries: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        security_of(WHOLE | entries)
    assert "s3cret" not in str(caught.value)


AS_PUBLISHED = {
    "Confluent Cloud": (
        "bootstrap.servers=pkc.us-east-1.aws.confluent.cloud:9092\nsecurity.protocol=SASL_SSL\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' "
        "password='s3cret/+=';\nsasl.mechanism=PLAIN\n# Required for clients prior to 2.6\n"
        "client.dns.lookup=use_all_dns_ips\nsession.timeout.ms=45000\nacks=all\n",
        "KEY by PLAIN",
    ),
    "Confluent Cloud, in lines": (
        "ssl.endpoint.identification.algorithm=https\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=\\\n"
        'org.apache.kafka.common.security.plain.PlainLoginModule required \\\nusername="KEY" \\\npassword="s3cret";\n',
        "KEY by PLAIN",
    ),
    "Confluent Cloud, OAuth": (
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.token.endpoint.url=https://idp.example.com/oauth2/default/v1/token\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId='ID' "
        "scope='s' clientSecret='s3cret' extension_logicalCluster='lkc-1' extension_identityPoolId='pool-1';\n",
        "ID by OAUTHBEARER",
    ),
    "MSK, IAM": (
        "# Sets up TLS for encryption and SASL for authN.\nsecurity.protocol = SASL_SSL\n\n"
        "sasl.mechanism = AWS_MSK_IAM\n\n"
        'sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="ops";\n\n'
        "sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler\n",
        "ops by AWS_MSK_IAM",
    ),
    "Event Hubs": (
        "bootstrap.servers=ns.servicebus.windows.net:9093\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="$ConnectionString" password="Endpoint=sb://ns/;SharedAccessKeyName=Root;SharedAccessKey=s3cret+/=";\n',
        "$ConnectionString by PLAIN",
    ),
}  # fmt: skip
"""Files as services give them to their users."""


@pytest.mark.parametrize("service", AS_PUBLISHED)
def test_the_files_of_services_work_as_they_are(service: str) -> None:
    text, identity = AS_PUBLISHED[service]
    security = security_of(parse_properties(text))
    assert security.tls is not None and security.sasl is not None
    assert (security.sasl.identity, security.tls.checks_host_name) == (identity, True)
    assert "s3cret" not in repr(security)


def test_a_token_for_msk_is_signed_here_for_the_brokers_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-Secr3t")
    entries = {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    }
    settings = sasl_settings(entries)
    assert (settings.mechanism_asked_for, settings.identity) == ("OAUTHBEARER", "AWS_MSK_IAM")
    first = next(exchange_for(settings, "b-1.mine.abc.c2.kafka.eu-central-1.amazonaws.com"))
    token = first.split(b"Bearer ")[1].rstrip(b"\x01").decode()
    url = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert url.startswith("https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "AKIATEST" in url and "aws-Secr3t" not in url
    # Temporary credentials, which a later login may find replaced.
    for session in ("first-session", "second-session"):
        monkeypatch.setenv("AWS_SESSION_TOKEN", session)
        first = next(exchange_for(settings, "b-1.mine.abc.c2.kafka.eu-central-1.amazonaws.com"))
        token = first.split(b"Bearer ")[1].rstrip(b"\x01").decode()
        assert f"X-Amz-Security-Token={session}" in urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    by_handler = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    }
    assert sasl_settings(by_handler).mechanism == "AWS_MSK_IAM"
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(SaslError, match="set AWS_REGION"):
        exchange_for(settings, "broker.example")
