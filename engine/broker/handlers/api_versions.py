"""ApiVersions (18): v0–v4.

Behaviour
* Lists exactly the APIs that have a handler, with the versions each answers.
* An unknown version gets an answer in the form of version 0, with UNSUPPORTED_VERSION and the one entry that tells
  the client which versions of ApiVersions to use. The connection stays open.
* The epoch of the finalized features is the version of ``/feature``; -1 if there are none.
* From v3 on the client names its software; a name or version that breaks KIP-511's form is INVALID_REQUEST.

Version notes
* v3 is flexible, but the answer's header stays version 0: the client does not yet know what the broker understands.
"""

from __future__ import annotations

import re
from functools import cache

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import all_handlers, handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiKey.API_VERSIONS, requires=[])
def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3:
        if not _names_its_software(request):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.session.client_software_name = request.client_software_name
        context.session.client_software_version = request.client_software_version
    return ApiVersionsResponse(
        api_keys=_offered(), finalized_features_epoch=context.broker.features_epoch if context.api_version >= 3 else -1
    )


def answer_unknown_version(context: RequestContext, request: None) -> ApiVersionsResponse:
    """Answer an ApiVersions request of an unknown version, whose body was not decoded."""
    spec = API_SPECS[ApiKey.API_VERSIONS]
    known = ApiVersion(api_key=int(spec.key), min_version=spec.min_version, max_version=spec.max_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])


def _names_its_software(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE_NAME.fullmatch(name) for name in names)


@cache
def _offered() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=entry.min_version, max_version=entry.max_version)
        for key, entry in all_handlers().items()
    ]
