"""The table of handlers. ApiVersions, the API table of the docs and the conformance tests all come from it.

The decorator ``handles`` registers a handler. A plain function answers at once (or returns a ``Deferred`` whose
answer comes from a purgatory); its request's memoryviews are valid only during the call. An ``async def`` handler may
await; it runs as a task while its connection is muted, and its request owns its bytes. A plain handler may also
return a coroutine for the rare case that it must wait; the coroutine keeps no memoryview.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from engine.broker.network.routes import HandlerSpec
from engine.common.acl import Requirement
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey

Handler = TypeVar("Handler", bound=Callable[..., Any])


_HANDLERS: dict[int, HandlerSpec] = {}
_PLAIN_HANDLERS: dict[int, Callable[..., Any]] = {}


def handles(key: ApiKey, *, requires: Iterable[str]) -> Callable[[Handler], Handler]:
    """Register the decorated function for an API, in all declared versions.

    Args:
        requires: rights that a request may need, such as ``Read Topic``; empty if every client may send it.
    """
    needed = tuple(map(Requirement.of, requires))

    def register(handler: Handler) -> Handler:
        if key in _HANDLERS:
            raise ValueError(
                f"{key.name} has two handlers: {_HANDLERS[key].handler.__module__} and {handler.__module__}"
            )
        spec = API_SPECS[key]
        is_async = inspect.iscoroutinefunction(handler)
        _HANDLERS[key] = HandlerSpec(key, spec.min_version, spec.max_version, handler, is_async, requires=needed)
        return handler

    return register


def handles_large(key: ApiKey) -> Callable[[Handler], Handler]:
    """Register an ``async def`` function for large requests; the handler above it answers the others of its API."""

    def register(handler: Handler) -> Handler:
        _HANDLERS[key] = replace(_HANDLERS[key], large_handler=handler)
        return handler

    return register


def handles_plain(key: ApiKey) -> Callable[[Handler], Handler]:
    """Register a function that answers usual requests from their bytes; the handler answers those it gives None for.

    It gets the frame and the position behind the header. It is not asked if there are rights to check, or quotas.
    """

    def register(handler: Handler) -> Handler:
        _PLAIN_HANDLERS[key] = handler
        return handler

    return register


def all_handlers() -> dict[int, HandlerSpec]:
    """Return the table by API key. The first call imports every module of this package, which takes a while."""
    _import_all()
    return {key: replace(spec, plain_handler=_PLAIN_HANDLERS.get(key)) for key, spec in sorted(_HANDLERS.items())}


@cache
def _import_all() -> None:
    package = importlib.import_module("engine.broker.handlers")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"engine.broker.handlers.{module.name}")
