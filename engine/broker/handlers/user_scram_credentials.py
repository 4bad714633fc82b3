"""DescribeUserScramCredentials (50): v0. AlterUserScramCredentials (51): v0.

Behaviour
* Describe and change SCRAM credentials (KIP-554). Their secrets are never returned.
* The controller changes them: others answer NOT_CONTROLLER. All changes of a user are made, or none.
* A user without a credential is RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE; a mechanism that does not exist
  is UNSUPPORTED_SASL_MECHANISM, and fewer than 4,096 or more than 16,384 iterations are UNACCEPTABLE_CREDENTIAL.
* A change takes effect for the next login; sessions that are open go on until they end.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from engine.broker.handlers.answer_lists import answer_list, each_once, repeated
from engine.broker.handlers.context import Broker, RequestContext
from engine.broker.handlers.in_turns import in_lists
from engine.broker.handlers.registry import handles
from engine.common.errors import CoordinationError, ErrorCode, KafkaError
from engine.kafka.config.dynamic import USERS
from engine.kafka.formats.scram_credential import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from engine.kafka.protocol.apis.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from engine.kafka.zk.configs import ConfigType, desanitized, sanitized
from engine.runtime.room import ask_others
from engine.runtime.turns import Breather, carry_out

_MECHANISMS: Final = dict(enumerate(HASHES, start=1))
"""Names by the codes in requests."""
_NO_NAME: Final = "Username must not be empty"


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, requires=["Describe Cluster"])
async def describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    configs, breather = context.broker.zk.configs, Breather()
    asked = request.users or ()
    twice = await carry_out(repeated(lambda: (user.name for user in asked)))
    if asked:
        users = await carry_out(each_once(context, lambda: ((user.name, None) for user in asked)))
        names: Iterable[str] = (name for name, _ in users if name is not None)
    else:
        names = [desanitized(name) for name in await configs.get_entity_names(ConfigType.USER)]
    results = answer_list(context, DescribeUserScramCredentialsResponse, "results")
    for batch in in_lists(names):
        stored = await configs.get_entities_configs([_entity(name) for name in batch])
        for name in batch:
            await breather.give_way()
            result = _described(name, stored[_entity(name)], is_repeated=name in twice)
            # Of all users, those without a credential are left out.
            if asked or result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)


def _described(
    name: str, texts: dict[str, str] | CoordinationError, *, is_repeated: bool
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name)
    if not name:
        result.error_code, result.error_message = ErrorCode.RESOURCE_NOT_FOUND, _NO_NAME
    elif is_repeated:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif isinstance(texts, CoordinationError):
        result.error_code, result.error_message = ErrorCode.UNKNOWN_SERVER_ERROR, str(texts)
    else:
        result.credential_infos = _infos(texts)
        if not result.credential_infos:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    return result


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, requires=["Alter Cluster"])
async def alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    breather = Breather()

    def asked() -> Iterable[ScramCredentialDeletion | ScramCredentialUpsertion]:
        return chain(request.deletions, request.upsertions)

    twice = await carry_out(repeated(lambda: (change.name for change in asked())))
    several: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = {name: [] for name in twice}
    for change in asked() if twice else ():
        await breather.give_way()
        if change.name in several:
            several[change.name].append(change)
    results = answer_list(context, AlterUserScramCredentialsResponse, "results")
    for change in asked():
        await breather.give_way()
        name = change.name
        own = several.pop(name, None) if name in twice else [change]
        if own is None:
            continue
        result = AlterUserScramCredentialsResult(user=name)
        try:
            if not context.broker.controller.is_active:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
            await _change(context.broker, name, own)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        except CoordinationError as error:
            result.error_code, result.error_message = ErrorCode.REQUEST_TIMED_OUT, str(error)
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


async def _change(broker: Broker, name: str, changes: list[ScramCredentialDeletion | ScramCredentialUpsertion]) -> None:
    """Make all changes of one user, or none of them."""
    mechanisms = set()
    breather = Breather()
    # Of several faults Kafka reports the last.
    for change in reversed(changes):
        _check(change)
        mechanisms.add(change.mechanism)
        await breather.give_way()
    if len(mechanisms) < len(changes):
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    ask_others()
    texts = await broker.zk.configs.get_entity_configs(_entity(name))
    for change in changes:
        mechanism = _MECHANISMS[change.mechanism]
        if isinstance(change, ScramCredentialUpsertion):
            credential = ScramCredential.of_salted_password(
                mechanism, bytes(change.salt), bytes(change.salted_password), change.iterations
            )
            texts[mechanism] = credential.encode()
        elif texts.pop(mechanism, None) is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    await broker.zk.configs.change_entity_configs(_entity(name), texts)


def _check(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, _NO_NAME)
    if change.mechanism not in _MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if not isinstance(change, ScramCredentialUpsertion):
        return
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if not change.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty")


def _infos(texts: dict[str, str]) -> list[CredentialInfo]:
    infos = []
    for code, mechanism in _MECHANISMS.items():
        if mechanism in texts:
            try:
                infos.append(
                    CredentialInfo(mechanism=code, iterations=ScramCredential.decode(texts[mechanism]).iterations)
                )
            except ValueError:
                # Nobody can log in with a malformed one, but it is there, and can be replaced.
                infos.append(CredentialInfo(mechanism=code, iterations=0))
    return infos


def _entity(user: str) -> str:
    return f"{USERS}/{sanitized(user)}"
