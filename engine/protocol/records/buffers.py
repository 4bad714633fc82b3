"""What the record code reads from: any of Python's contiguous byte buffers."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
