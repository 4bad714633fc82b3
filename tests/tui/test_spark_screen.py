"""Spark's queries on the screen: the rows, where they lead, and what is there without any."""

from __future__ import annotations

import csv
import io
import json

from dashboards import Driven, dashboard
from event_loop import in_event_loop
from fake_feed import fake_feed

from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.lag.verdicts import LagStatus
from engine.admin.watch.frame import LinkState, Stage
from tui.screen.saving import Saving
from tui.state.status import Standing, standing_of
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import LinesView


@in_event_loop
async def test_rows_are_the_sources_of_queries_with_their_verdict() -> None:
    async with dashboard("streaming", page="spark", size=(200, 30)) as driven:
        assert "3 queries" in driven.text and "2 unhealthy" in driven.text
        behind = driven.lines_with("clicks-sessions")[0]
        # 300 records a second come to six partitions in addition to what it reads: 600 in, 360 out.
        for figure in ("BEHIND", "↑ 240/s", "lag never fell", "checkpoint"):
            assert figure in behind
        assert "STUCK" in driven.lines_with("payments-fraud")[0]
        assert "RUNNING" in driven.lines_with("orders-to-lake")[0]
        rows = json.loads(Saving(driven.main).text_of("row"))
        shown = {query.job.name: query for query in driven.app.board.frame.queries}  # type: ignore[union-attr]
        (lag,) = shown["clicks-sessions"].lags
        assert (rows[0]["lag"], rows[0]["time_lag_ms"]) == (lag.lag, lag.time_lag_ms)
        assert rows[0]["status"] == LagStatus.BEHIND.rank


@in_event_loop
async def test_enter_opens_the_partitions_and_from_there_the_topic() -> None:
    async with dashboard("streaming", page="spark") as driven:
        await driven.press("enter")
        assert "› Spark › clicks-sessions" in driven.text.splitlines()[0]
        assert "BEHIND lag never fell" in driven.text and "/srv/spark/clicks-sessions/checkpoint" in driven.text
        rows = list(csv.DictReader(io.StringIO(Saving(driven.main).text_of("view"))))
        assert [row["partition"] for row in rows] == [f"clicks,{number}" for number in range(6)]
        assert all(int(row["end"]) - int(row["committed"]) == int(row["lag"]) > 0 for row in rows)
        await driven.press("enter")
        assert driven.main.location.topic == "clicks"
        await driven.press("escape", "escape")
        assert driven.main.location.page == "spark"


@in_event_loop
async def test_below_the_rows_stands_why_a_query_is_behind_and_where_its_offsets_are() -> None:
    async with dashboard("streaming", page="spark", size=(120, 40)) as driven:
        await driven.tick(4)
        assert "WHY" in driven.lines_with("QUERY ")[0]
        text = driven.main.query_one("#aside", LinesView).text
        assert text.startswith("clicks-sessions  BEHIND  lag never fell")
        assert "clicks-0  ▇" in text and "checkpoint /srv/spark/clicks-sessions/checkpoint" in text


@in_event_loop
async def test_only_trouble_keeps_who_is_behind_or_worse() -> None:
    async with dashboard("streaming", page="spark") as driven:
        await driven.press("z")
        assert not driven.lines_with("orders-to-lake")
        assert driven.lines_with("clicks-sessions") and driven.lines_with("payments-fraud")


@in_event_loop
async def test_without_a_place_it_says_how_to_name_one() -> None:
    async with dashboard("live", page="spark", size=(80, 24)) as driven:
        assert "no checkpoint and no event log is named" in driven.text
        assert "klamm top --checkpoint PLACE --event-log PLACE" in driven.text


@in_event_loop
async def test_a_store_that_fails_is_told_there_and_says_nothing_of_the_cluster() -> None:
    async with dashboard("streaming", page="spark") as driven:
        driven.feed.cluster.fail_stage(Stage.SPARK, "the store cannot be opened: /srv/spark")
        await driven.tick(3)
        assert "the store cannot be opened: /srv/spark" in driven.text
        assert driven.lines_with("clicks-sessions"), "what was read stays"
        assert driven.text.splitlines()[1].strip().startswith("● live")
        await driven.tick(60)
        assert "read 1m" in driven.text
        assert standing_of(driven.app.newest) is Standing.LIVE
        await driven.press("i")
        assert driven.lines_with("spark")


@in_event_loop
async def test_queries_without_brokers_have_no_figure_that_nobody_told() -> None:
    feed = fake_feed("streaming", plays=False)
    feed.cluster.set_link(Side.WIRE, LinkState.LOST, "connection refused")
    async with dashboard(feed, page="spark") as driven:
        frame = driven.app.board.frame
        assert frame is not None
        await _show_without_lags(driven)
        row = driven.lines_with("clicks-sessions")[0]
        assert row.count("—") >= 3 and "clicks" in row
        assert "lag not known" in driven.text and "0 records behind" not in driven.text
        await driven.press("enter")
        assert "not known while no broker says where they end" in driven.text


async def _show_without_lags(driven: Driven) -> None:
    from dataclasses import replace

    frame = driven.app.board.frame
    assert frame is not None
    bare = tuple(replace(query, lags=()) for query in frame.queries)
    driven.app.take(replace(frame, sequence=frame.sequence + 1, queries=bare))
    await driven.pilot.pause()


@in_event_loop
async def test_the_command_for_a_row_names_its_place() -> None:
    target = ClusterTarget("dev", Origin.OPTIONS, bootstrap=(("kafka1", 9092),), checkpoints=("/srv/spark/*",))
    async with dashboard("streaming", page="spark", target=target) as driven:
        assert "lag --checkpoint /srv/spark/clicks-sessions/checkpoint" in Saving(driven.main).command()


@in_event_loop
async def test_time_that_passes_is_no_news() -> None:
    async with dashboard("streaming", page="spark", size=(200, 30)) as driven:
        await driven.tick(2)
        while driven.app.board.frame is not None and driven.app.board.frame.age_ms(Stage.SPARK):
            await driven.tick()
        columns = [column.name for column in driven.main.model.rows.columns]
        before = driven.main.query_one(LineTable)
        changed = {columns[index] for of_row in before._changed.values() for index in of_row}
        assert "last_commit_ms" not in changed
        assert "lag" in changed, "what did change is tinted"
