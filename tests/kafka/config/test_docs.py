"""The generated reference pages match those in the repository, and cover every setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF
from engine.kafka.config.docs import broker_page, pages, topic_page, write_pages
from engine.kafka.config.dynamic_keys import THROTTLE_KEYS
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", pages())
def test_pages_are_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == pages()[name], "run: make docs"


def test_every_setting_has_its_row() -> None:
    for page, keys in ((broker_page(), (*BROKER_CONFIG_DEF, *THROTTLE_KEYS)), (topic_page(), TOPIC_CONFIG_DEF)):
        rows = [line for line in page.splitlines() if line.startswith("| `") and not line.startswith("| `klamm.")]
        assert len(rows) == len(tuple(keys))
        for key in keys:
            (row,) = [row for row in rows if row.startswith(f"| `{key.name}` |")]
            assert f"| {'yes' if key.has_effect else 'no'} | " in row
            assert key.doc.replace("|", "\\|") in row


def test_rows_have_as_many_cells_as_their_heads() -> None:
    for page in (broker_page(), topic_page()):
        cells = 0
        for line in page.splitlines():
            if line.startswith("| Setting"):
                cells = line.count(" |")
            elif line.startswith("|"):
                assert line.replace("\\|", "").count(" |") == cells


def test_writes_files(tmp_path: Path) -> None:
    write_pages(tmp_path / "new" / "folder")
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == set(pages())
