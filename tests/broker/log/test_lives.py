"""The lives of topics on one broker: every acknowledged record through deletions, moves, cleanings and crashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from forgetful_disk import KILLED, MIXED, STRICT
from lives import Lives
from soak import rounds

STEPS = 50


@pytest.mark.parametrize("crash", [KILLED, STRICT, MIXED])
@pytest.mark.parametrize("seed", range(rounds("KLAMM_LIVES_SEEDS", 4)))
def test_no_record_is_lost_and_none_outlives_its_topic(tmp_path: Path, seed: int, crash: str) -> None:
    lives = Lives(tmp_path, seed, (crash,))
    try:
        for _ in range(STEPS):
            lives.step()
    except BaseException:
        print("\n".join(lives.told[-30:]))
        raise
    finally:
        lives.logs.release()
