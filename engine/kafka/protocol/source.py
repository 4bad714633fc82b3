"""A Python function under construction: lines, indentation, fresh names, constants. It knows nothing about messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Collects the source of functions, and their globals."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._count = 0

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self._lines.append(" " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add ``head`` and indent what follows."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, value: Any, stem: str) -> str:
        """Return the name that gives the functions ``value``."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = self.fresh(stem)
        self.constants[name] = value
        return name

    @property
    def text(self) -> str:
        """All lines so far."""
        return "\n".join(self._lines) + "\n"

    def compile(self, name: str, file_name: str) -> Any:
        """Run the text and return the function ``name``; ``file_name`` appears in tracebacks."""
        exec(compile(self.text, file_name, "exec"), self.constants)
        return self.constants[name]
