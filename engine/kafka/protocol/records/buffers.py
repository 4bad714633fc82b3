"""The input of the record code: any of Python's contiguous byte buffers."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
