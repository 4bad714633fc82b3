"""The page of benchmarks shows the articles' figures beside our own."""

from __future__ import annotations

from doc_pages import ROOT

from engine.admin.perf.suite import experiments


def test_the_articles_figures_stand_beside_ours_and_kafkas() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    section = page.partition("## The articles' experiments\n")[2].partition("\n## ")[0]
    theirs = [line for line in section.splitlines() if line.startswith(("| one ", "| a producer and a consumer at"))]
    assert [line.split("|")[2].strip() for line in theirs] == ["1.28 M", "3.06 M", "1.22 M"]
    measured = section.partition("| case | klamm")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in measured]
    assert len(cells) >= len(experiments(3)), "each experiment has a case at least"
    assert all(len(row) == 3 and all(row) for row in cells), "ours and Kafka's, of the same run"


def test_batches_that_are_sent_again_are_told() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert page.count("encoded anew ¹") >= 2, "a row of each broker"
    assert "64 " in page.partition('the rows "encoded anew"')[0][-600:]
