"""Work in threads beside the loop."""

from __future__ import annotations

import asyncio
import threading

from engine.runtime.offload import beside_loop


def test_python_work_beside_the_loop_runs_one_at_a_time() -> None:
    """Several threads would take the GIL from the loop in turn, and a take-over holds requests for all brokers."""
    running: list[int] = []
    most = 0

    def work(number: int) -> int:
        nonlocal most
        assert threading.current_thread() is not threading.main_thread()
        running.append(number)
        most = max(most, len(running))
        # Wait for a second one, which never comes.
        threading.Event().wait(0.02)
        running.remove(number)
        return number

    async def check() -> list[int]:
        return await asyncio.gather(*(beside_loop(work, number) for number in range(5)))

    assert asyncio.run(check()) == [0, 1, 2, 3, 4]
    assert most == 1
