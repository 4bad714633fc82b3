"""Plans by keys alone, in a dashboard that a test drives."""

from __future__ import annotations

from dashboards import Driven


async def make_move(driven: Driven, topic: str, brokers: str) -> None:
    """Make a plan that moves a topic."""
    await driven.press("N")
    await driven.sees("Make a plan")
    await driven.press("7")
    await driven.sees("Plan: move topics to a list of brokers")
    await driven.type(brokers)
    await driven.press("down", "down")
    await driven.type(topic)
    await driven.press("ctrl+g")
    await driven.until(lambda: driven.main.off_board.plan is not None and driven.app.screen is driven.main)


async def apply_until_it_moves(driven: Driven, throttle: str, waves: str = "2 waves") -> None:
    """Apply a plan, and wait until its first wave is under way. A plan that was saved keeps its name."""
    await driven.press("A")
    await driven.sees("Throttle")
    if "Saved as" in driven.text:
        await driven.press("down")
    await driven.type(throttle)
    await driven.press("ctrl+g")
    await driven.sees(f"in {waves}, at")
    await driven.press("y")
    await driven.until(lambda: driven.main.off_board.run is not None and driven.main.off_board.run.progress is not None)
