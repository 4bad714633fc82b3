"""The server's side of SASL mechanisms against the client's, against examples of the RFCs, and against bad tokens."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from engine.broker.security.sasl_mechanisms import (
    Candidate,
    LoggedIn,
    LoginRefused,
    ServerExchange,
    oauthbearer_server,
    plain_server,
    scram_server,
    unsecured_validator,
)
from engine.kafka.client.sasl.exchange import Exchange, SaslError, plain_exchange
from engine.kafka.client.sasl.oauthbearer import oauthbearer_exchange, unsecured_token
from engine.kafka.client.sasl.scram import scram_exchange
from engine.kafka.formats.scram_credential import ScramCredential

NOW_MS = 1_700_000_000_000
PASSWORDS = {"alice": 'al1ce, "quoted"', "jürgen": "gehäim"}


def agreed(client: Exchange, server: ServerExchange) -> LoggedIn:
    """Let both talk; return who has logged in. The client checks what the server says last."""
    next(server)
    token = next(client)
    while True:
        try:
            answer = server.send(token)
        except StopIteration as done:
            with pytest.raises(StopIteration):
                client.send(done.value.answer)
            who: LoggedIn = done.value
            return who
        token = client.send(answer)


def refusal(server: ServerExchange, *tokens: bytes) -> LoginRefused:
    next(server)
    with pytest.raises(LoginRefused) as caught:
        for token in tokens:
            server.send(token)
    return caught.value


def scram(mechanism: str = "SCRAM-SHA-256", iterations: int = 4096) -> ServerExchange:
    def candidate_of(name: str, is_token: bool) -> Candidate | None:
        if name not in PASSWORDS or is_token:
            return None
        salt = b"salt" + name.encode()
        return ScramCredential.of_password(mechanism, PASSWORDS[name], salt, iterations), LoggedIn(name)

    return scram_server(mechanism, candidate_of)


@pytest.mark.parametrize("name", list(PASSWORDS))
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_agrees_with_the_client(mechanism: str, name: str) -> None:
    client = scram_exchange(mechanism, name, PASSWORDS[name], is_token=False)
    assert agreed(client, scram(mechanism)).name == name


def test_scram_of_the_rfc() -> None:
    """The example of RFC 7677."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.of_password("SCRAM-SHA-256", "pencil", salt, 4096)
    server = scram_server("SCRAM-SHA-256", lambda name, _: (credential, LoggedIn(name)),
                          nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")  # fmt: skip
    next(server)
    first = server.send(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    with pytest.raises(StopIteration) as done:
        server.send(b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")  # fmt: skip
    assert done.value.value == LoggedIn("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_name_with_commas_and_equal_signs_is_one_name() -> None:
    credential = ScramCredential.of_password("SCRAM-SHA-256", "p", b"s", 4096)
    asked: list[str] = []

    def candidate_of(name: str, is_token: bool) -> Candidate:
        asked.append(name)
        return credential, LoggedIn(name)

    client = scram_exchange("SCRAM-SHA-256", "a,b=c=2Cd", "p", is_token=False)
    assert agreed(client, scram_server("SCRAM-SHA-256", candidate_of)).name == "a,b=c=2Cd"
    assert asked == ["a,b=c=2Cd"]


def test_scram_refuses_a_wrong_password_and_tells_no_more_than_that_it_is_wrong() -> None:
    client = scram_exchange("SCRAM-SHA-256", "alice", "wrong", is_token=False)
    server = scram()
    next(server)
    final = client.send(server.send(next(client)))
    with pytest.raises(LoginRefused) as caught:
        server.send(final)
    assert caught.value.told is None
    assert refusal(scram(), b"n,,n=nobody,r=abc").told is None


class Key(bytes):
    """A secret that tells how alike another is once somebody looks for a difference: byte by byte, or by its hash."""

    def refuse(self, *_: object) -> Any:
        raise AssertionError("a secret is compared, and not in constant time")

    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __hash__ = refuse  # type: ignore[assignment]
    startswith = endswith = find = index = __getitem__ = __iter__ = refuse


class Password(str):
    __slots__ = ()

    def encode(self, *_: object) -> bytes:  # type: ignore[override]
        return Key(str.encode(self))

    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __hash__ = Key.refuse  # type: ignore[assignment]
    startswith = endswith = find = index = __getitem__ = __iter__ = Key.refuse  # type: ignore[assignment]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the lengths of all that is compared in constant time."""
    lengths: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def note(one: bytes, other: bytes) -> bool:
        lengths.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", note)
    return lengths


@pytest.mark.parametrize("password", ["al1ce-pw", "al1ce-pX", "a", "al1ce-pw and more"])
def test_a_password_is_compared_as_a_whole_in_constant_time(password: str, compared: list[tuple[int, int]]) -> None:
    server = plain_server({"alice": Password("al1ce-pw")})
    if password == "al1ce-pw":
        assert agreed(plain_exchange("alice", password), server).name == "alice"
    else:
        refusal(server, f"\0alice\0{password}".encode())
    assert compared == [(8, len(password))]


def test_an_unknown_user_takes_as_long_as_a_wrong_password(compared: list[tuple[int, int]]) -> None:
    refusal(plain_server({"alice": Password("al1ce-pw")}), b"\0nobody\0al1ce-pX")
    ((_, length),) = compared
    assert length == 8


@pytest.mark.parametrize("is_token", [False, True], ids=["password", "token"])
@pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
@pytest.mark.parametrize(("mechanism", "length"), [("SCRAM-SHA-256", 32), ("SCRAM-SHA-512", 64)])
def test_a_proof_is_compared_as_a_whole_in_constant_time(
    mechanism: str, length: int, is_right: bool, is_token: bool, compared: list[tuple[int, int]]
) -> None:
    stored = ScramCredential.of_password(mechanism, "al1ce-pw", b"salt", 4096)
    credential = replace(stored, stored_key=Key(stored.stored_key), server_key=Key(stored.server_key))
    server = scram_server(mechanism, lambda name, _: (credential, LoggedIn(name)))
    client = scram_exchange(mechanism, "alice", "al1ce-pw" if is_right else "al1ce-pX", is_token=is_token)
    next(server)
    final = client.send(server.send(next(client)))
    with pytest.raises(StopIteration if is_right else LoginRefused):
        server.send(final)
    assert compared == [(length, length)]


def test_a_false_proof_never_passes_whatever_the_client_changes() -> None:
    """Each bit of the proof, and a nonce or name of somebody else."""
    client = scram_exchange("SCRAM-SHA-256", "alice", PASSWORDS["alice"], is_token=False)
    server = scram()
    next(server)
    final = client.send(server.send(next(client)))
    head, _, proof = final.rpartition(b",p=")
    for position in range(0, len(proof) - 1, 5):
        other = b"A" if proof[position : position + 1] != b"A" else b"B"
        changed = proof[:position] + other + proof[position + 1 :]
        again = scram_exchange("SCRAM-SHA-256", "alice", PASSWORDS["alice"], is_token=False)
        fresh = scram()
        next(fresh)
        fresh.send(next(again))
        with pytest.raises(LoginRefused):
            fresh.send(head + b",p=" + changed)


@pytest.mark.parametrize(
    "tokens",
    [
        [b""],
        [b"\xff"],
        [b"n,,n=alice"],
        [b"n,,n=al=ice,r=x"],
        [b"y,,n=alice,r=x"],
        [b"p=tls-unique,,n=alice,r=x"],
        [b"n,,n=alice,r=x,tokenauth=true"],
        [b"n,,n=alice,r=x", b""],
        [b"n,,n=alice,r=x", b"c=biws,r=x,p=AAAA"],
        [b"n,,n=alice,r=x", b"c=biws,r=y,p=AAAA"],
        [b"n,,n=alice,r=x" + b"x" * 100_000, b"c=biws,p=AAAA"],
    ],
)
def test_malformed_scram_is_refused(tokens: list[bytes]) -> None:
    assert refusal(scram(), *tokens).told is None


LONG_BYTES = 520_000
"""About the most that ``sasl.server.max.receive.size`` lets through."""


@pytest.mark.parametrize("repeated", [b"a", b",", b"=", b"a=", b",a", b",a=b", b"=2C", b",p=", b",p=A", b"\0", b"\x01"])
@pytest.mark.parametrize(
    ("server", "begins"),
    [
        (lambda: plain_server(PASSWORDS), [b"", b"\0alice\0"]),
        (scram, [b"", b"n,,n=", b"n,a=", b"n,,n=alice,r=", b"n,,n=nobody,r=x,"]),
        (lambda: oauthbearer_server(validator()), [b"", b"n,a=", b"n,,\x01", b"n,,\x01auth=", b"n,,\x01auth=Bearer "]),
    ],
    ids=["PLAIN", "SCRAM", "OAUTHBEARER"],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_long_token_of_anybody_is_soon_done_with(
    server: Callable[[], ServerExchange], begins: list[bytes], repeated: bytes
) -> None:
    """A token is read on the event loop: if that took time by the square of its length, it would take an hour."""
    for begin in begins:
        exchange = server()
        next(exchange)
        with suppress(LoginRefused):
            exchange.send(begin + repeated * (LONG_BYTES // len(repeated)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("repeated", [b"a", b",", b"=", b",a=b", b",p=", b",p=A"])
def test_a_long_last_message_is_soon_done_with(repeated: bytes) -> None:
    for begin in (b"c=", b"c=biws,r=", b"c=biws,r=x,", b"c=biws,r=x,p="):
        refusal(scram(), b"n,,n=alice,r=x", begin + repeated * (LONG_BYTES // len(repeated)))


@pytest.mark.parametrize(
    ("extensions", "is_token"),
    [
        (b"", False),
        (b",tokenauth=true", True),
        (b",tokenauth=TRUE,a=b", True),
        (b",a=b,tokenauth=true", True),
        (b",tokenauth=false", False),
        (b",tokenauth=true,tokenauth=false", False),
        (b",tokenauth=truer", False),
        (b",notokenauth=true", False),
        (b",a=tokenauth=true", False),
    ],
)
def test_an_extension_says_that_a_name_is_a_tokens_id(extensions: bytes, is_token: bool) -> None:
    asked: list[tuple[str, bool]] = []
    server = scram_server("SCRAM-SHA-256", lambda name, by_token: asked.append((name, by_token)))
    refusal(server, b"n,,n=alice,r=x" + extensions)
    assert asked == [("alice", is_token)]


def test_a_credential_with_few_iterations_lets_nobody_in() -> None:
    refusal(scram(iterations=4095), b"n,,n=alice,r=x")


def test_an_identity_other_than_the_name_is_refused() -> None:
    refused = refusal(scram(), b"n,a=bob,n=alice,r=x")
    assert refused.told == "Authentication failed: Client requested an authorization id that is different from username"
    assert refusal(plain_server(PASSWORDS), b"bob\0alice\0" + PASSWORDS["alice"].encode()).told == refused.told


def test_plain() -> None:
    for name, password in PASSWORDS.items():
        assert agreed(plain_exchange(name, password), plain_server(PASSWORDS)).name == name
    server = plain_server(PASSWORDS)
    next(server)
    with pytest.raises(StopIteration):
        server.send(b"alice\0alice\0" + PASSWORDS["alice"].encode())


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0a\0b", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\xff\0\0", "Invalid SASL/PLAIN response: not UTF-8"),
    ],
)
def test_plain_refuses_in_kafkas_words(token: bytes, expected: str) -> None:
    assert refusal(plain_server(PASSWORDS), token).told == expected


def validator(**options: str) -> Callable[[str], LoggedIn]:
    return unsecured_validator(options, lambda: NOW_MS)


def token(header: object = {"alg": "none"}, signature: str = "", **claims: Any) -> str:
    claims = {"sub": "alice", "exp": NOW_MS / 1000 + 60} | claims
    parts = (urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims))
    return ".".join((*parts, signature))


def test_oauthbearer_takes_kafkas_own_unsecured_token() -> None:
    made = unsecured_token({"unsecuredLoginStringClaim_sub": "alice"}, now_s=NOW_MS / 1000)
    who = agreed(oauthbearer_exchange(made, {"traceId": "1"}), oauthbearer_server(validator()))
    assert (who.name, who.expires_at_ms) == ("alice", NOW_MS + 3_600_000)


@pytest.mark.parametrize(
    "refused",
    [
        token(exp=NOW_MS / 1000),
        token(exp=None),
        token(exp="soon"),
        token(exp=True),
        token(exp=1e300),
        token(iat=NOW_MS / 1000 + 1),
        token(sub=""),
        token(sub=7),
        token({"alg": "HS256"}, "c2ln"),
        token({"alg": "none"}, "c2ln"),
        token([]),
        "x.y.z",
        "[" * 5000,
        urlsafe_b64encode(b"[" * 100_000).decode() + ".e30.",
    ],
)
def test_bad_tokens_are_refused_by_a_challenge_and_then_an_error(refused: str) -> None:
    with pytest.raises(LoginRefused):
        validator()(refused)
    server = oauthbearer_server(validator())
    next(server)
    assert server.send(f"n,,\x01auth=Bearer {refused}\x01\x01".encode()) == b'{"status":"invalid_token"}'
    with pytest.raises(LoginRefused) as caught:
        server.send(b"\x01")
    assert caught.value.told == '{"status":"invalid_token"}'
    client = oauthbearer_exchange(refused, {})
    next(client)
    assert client.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError):
        client.send(b"")


def test_a_token_may_not_name_half_a_character() -> None:
    refused = f"n,,\x01auth=Bearer {token(sub=chr(0xD800))}\x01\x01".encode()
    assert refusal(oauthbearer_server(validator()), refused, b"\x01").told == '{"status":"invalid_token"}'


def test_tokens_need_the_scopes_and_the_claim_that_the_options_name() -> None:
    options = {"unsecuredValidatorRequiredScope": "read write", "unsecuredValidatorPrincipalClaimName": "user"}
    check = validator(**options)
    assert check(token(user="u", scope="write read more")).name == "u"
    assert check(token(user="u", scope=["read", "write"])).name == "u"
    odd = {"user": "u", "scope": [["read"], {}, "write"]}
    for claims in ({"user": "u", "scope": "read"}, {"user": "u"}, {"scope": "read write"}, odd):
        with pytest.raises(LoginRefused):
            check(token(**claims))
    # Clients write microseconds.
    assert validator()(token(iat=NOW_MS / 1000 + 0.0009)).name == "alice"
    late = token(exp=NOW_MS / 1000 - 1)
    assert validator(unsecuredValidatorAllowableClockSkewMs="2000")(late).name == "alice"


def test_another_identity_than_that_of_the_token_is_refused() -> None:
    server = oauthbearer_server(validator())
    assert "bob" in str(refusal(server, f"n,a=bob,\x01auth=Bearer {token()}\x01\x01".encode()).told)


@pytest.mark.parametrize(
    "pairs", ["auth=Bearer {}", "auth=Bearer x\x01auth=Bearer {}", "a=b\x01auth=Bearer {}\x01authx=y"]
)
def test_the_last_of_several_tokens_counts(pairs: str) -> None:
    server = oauthbearer_server(validator())
    next(server)
    with pytest.raises(StopIteration) as done:
        server.send(f"n,,\x01{pairs.format(token())}\x01\x01".encode())
    assert done.value.value.name == "alice"


@pytest.mark.parametrize(
    "message", [b"", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"\xff"]
)
def test_malformed_oauthbearer_is_refused(message: bytes) -> None:
    assert refusal(oauthbearer_server(validator()), message).told is None


RECORDED = (
    "salt=bG1rZ3p1NWxocnh4aW4zM2J6bjBleGd5Mw==,stored_key=1ZoMhT1VVWcBmH8lUX28tTjqerAhfKpr+JMq+kHDkII=,"
    "server_key=k6VF0KSf8rBgMlUIU/FFWHviyL0u5GjyzmHBzSeEEvU=,iterations=8192"
)
"""The SCRAM-SHA-256 credential that Kafka 3.9.1 wrote for the password 'secret'."""


def test_credentials_are_written_as_kafka_writes_them() -> None:
    credential = ScramCredential.decode(RECORDED)
    assert credential.encode() == RECORDED
    assert ScramCredential.of_password("SCRAM-SHA-256", "secret", credential.salt, 8192) == credential
    for malformed in ("", "salt=x", RECORDED.replace("8192", "many"), RECORDED.replace("salt=", "salt=*")):
        with pytest.raises(ValueError):
            ScramCredential.decode(malformed)


def final_message(first: str, server_first: bytes, nonce: str) -> bytes:
    """Return alice's last SCRAM message with a nonce of the caller's choice, and the proof that belongs to it."""
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    without_proof = f"c=biws,r={nonce}"
    said = f"{first.removeprefix('n,,')},{server_first.decode()},{without_proof}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORDS["alice"].encode(), b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("client_nonce", "nonce_of", "is_in"),
    [
        ("abc", lambda sent: sent, True),
        # librdkafka before 2.6.1, which Debian's kcat has.
        ("abc", lambda sent: f"abc{sent}", True),
        # The nonce of another login: a message that was overheard does not count again.
        ("abc", lambda sent: f"abc{'A' * 32}", False),
        ("abc", lambda sent: sent[1:], False),
        ("abc", lambda sent: f"{sent}A", False),
    ],
)
def test_the_last_message_ends_with_the_nonce_of_this_login(
    client_nonce: str, nonce_of: Callable[[str], str], is_in: bool
) -> None:
    server, first = scram(), f"n,,n=alice,r={client_nonce}"
    next(server)
    server_first = server.send(first.encode())
    sent = server_first.decode().partition(",")[0].removeprefix("r=")
    with pytest.raises(StopIteration if is_in else LoginRefused):
        server.send(final_message(first, server_first, nonce_of(sent)))
