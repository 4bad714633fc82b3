"""``python -m engine.broker.server``."""

from __future__ import annotations

import sys

from engine.broker.server.process import main

if __name__ == "__main__":
    sys.exit(main())
