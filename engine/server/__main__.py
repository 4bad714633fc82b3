"""``python -m engine.server``."""

from __future__ import annotations

import sys

from engine.server.process import main

if __name__ == "__main__":
    sys.exit(main())
