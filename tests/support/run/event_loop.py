"""Tests that are coroutines: each runs in its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec

P = ParamSpec("P")


def in_event_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a coroutine as a test. Tasks that it leaves behind end with it."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def awaiting() -> None:
            await test(*args, **kwargs)

        asyncio.run(awaiting())

    return run


async def until(condition: Callable[[], object]) -> None:
    """Return once this is so, which takes no longer than a minute."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


def staged(
    play: Callable[..., None], *more: Any, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a test of a coroutine that ``play(scene, *more, **options)`` calls with what it has set up.

    The coroutine takes that in its positional-only parameters. Its others are fixtures; so are the keyword-only
    parameters of ``play`` that have no default.
    """
    wanted = [each for each in signature(play).parameters.values() if each.kind is Parameter.KEYWORD_ONLY]
    needed = {each.name: each for each in wanted if each.default is Parameter.empty and each.name not in options}

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        taken = list(signature(test).parameters.values())
        bound = taken[:1] if taken and taken[0].name == "self" else []
        own = {each.name: each for each in taken if each.kind is not Parameter.POSITIONAL_ONLY}

        @wraps(test)
        def run(*instance: Any, **fixtures: Any) -> None:
            async def scene(*given: Any) -> None:
                await test(*instance, *given, **{name: fixtures[name] for name in own})

            play(scene, *more, **{name: fixtures[name] for name in needed}, **options)

        fixtures_of = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (own | needed).values()]
        run.__signature__ = Signature([*bound, *fixtures_of])  # type: ignore[attr-defined]
        return run

    return decorate
