"""The page of exit codes matches the program's own list."""

from __future__ import annotations

from doc_pages import DOCS

from cli.exit_codes import ExitCode


def test_every_code_is_explained_as_the_program_explains_it() -> None:
    lines = (DOCS / "reference" / "exit-codes.md").read_text("utf-8").partition("## Of a broker")[0].splitlines()
    rows = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in lines if line[2:3].isdigit()]
    assert rows == [(str(int(code)), code.name, code.meaning) for code in ExitCode]
