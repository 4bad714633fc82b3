"""``python switched_broker.py FILE.properties``: a broker that treats frames of 4 kB as large ones.

While a file ``nothing-is-large`` exists beside the properties, it treats no frame as a large one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.broker.handlers import answer_lists
from engine.broker.network import connection
from engine.broker.server.process import main

SWITCH = Path(sys.argv[-1]).with_name("nothing-is-large")


class _Switched(int):
    def __le__(self, size: int) -> bool:
        return not SWITCH.exists() and int(self) <= size


if __name__ == "__main__":
    answer_lists.LARGE_FRAME_BYTES = connection.LARGE_FRAME_BYTES = _Switched(4000)
    connection.PRODUCED_AT_ONCE_MAX = 500
    sys.exit(main())
