"""What a key acts on: what is chosen on this screen, and never more than that."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from dashboards import Driven, shown
from event_loop import staged
from fake_cluster import FakeCluster
from fake_feed import FakeFeed

from engine.admin.cluster.errors import BadRequest
from engine.admin.elections.scope_and_result import ElectionScope, ElectionType
from engine.admin.health.report import Check, HealthReason, HealthReport, HealthStatus, Severity
from engine.common.model import NO_LEADER, TopicPartition
from tui.dialogs.dialog import TextDialog
from tui.drawing.cells import Cell
from tui.operations.elections import Elect, sum_of
from tui.operations.groups import RESET_HINT, DeleteGroups, ResetOffsets
from tui.operations.operation import Outcome
from tui.operations.partitions import AbortHanging, DeleteRecords, VerifyReplicas
from tui.operations.reassignments import sum_of as cancel_sum
from tui.operations.reassignments import typed_rate
from tui.operations.topics import DeleteTopics
from tui.screen.action_handlers import chosen
from tui.screen.offers import Ask, NotNow, Offer, offer_for
from tui.state.location import Location
from tui.state.problems import problems_of

ELECTIONS = {"leader.elect": ElectionType.PREFERRED, "leader.elect_unclean": ElectionType.UNCLEAN}


def offered(driven: Driven, action_id: str) -> Offer:
    main = driven.main
    if action_id.startswith("plan."):
        return main.desk.offer_for(action_id, main.view, chosen(main, action_id))
    return offer_for(action_id, main.view, chosen(main, action_id))


@staged(shown)
async def test_on_the_screen_of_a_partition_keys_act_on_that_partition(driven: Driven, /) -> None:
    driven.main.go_to(Location("partition", topic="orders", partition=7))
    await driven.settled()
    for action_id, election in ELECTIONS.items():
        assert offered(driven, action_id) == Elect(election, ElectionScope((("orders", 7),)))
    name = TopicPartition("orders", 7)
    assert offered(driven, "replicas.verify") == VerifyReplicas(("orders",), name)
    assert offered(driven, "transactions.abort") == AbortHanging((name,))
    asked = offered(driven, "records.delete")
    assert asked.build({"before": "-1"}) == DeleteRecords.of((name,), "-1")  # type: ignore[union-attr]


@staged(shown)
async def test_a_partition_that_is_gone_is_not_replaced_by_its_topic_or_by_all(driven: Driven, /) -> None:
    driven.main.go_to(Location("partition", topic="orders", partition=99))
    await driven.settled()
    for action in driven.app.session.registry.on_page("partitions"):
        if action.changes or action.id in ("replicas.verify", "plan.move", "plan.factor"):
            assert isinstance(offered(driven, action.id), NotNow), action.id


@staged(shown)
async def test_on_a_groups_own_page_keys_act_on_that_group(driven: Driven, /) -> None:
    driven.main.go_to(Location("group", group="billing"))
    await driven.settled()
    assert offered(driven, "group.delete") == DeleteGroups(("billing",))


def two_topics() -> FakeFeed:
    return FakeFeed(FakeCluster(3, {"orders": 2, "clicks": 2}), plays=False)


OF_TOPICS = (
    "topic.grow", "settings.alter", "leader.elect", "leader.elect_unclean", "replicas.verify", "plan.move",
    "plan.factor",
)  # fmt: skip


@pytest.mark.parametrize("where", [Location("partitions", topic="orders"), Location("partition", "orders", 0)])
def test_a_topic_that_was_deleted_while_it_was_looked_at_is_said_to_be_gone(where: Location) -> None:
    async def look(driven: Driven) -> None:
        driven.main.go_to(where)
        driven.feed.cluster.delete_topic("orders")
        await driven.tick()
        for action_id in (*OF_TOPICS, "records.delete", "transactions.abort"):
            offer = offered(driven, action_id)
            assert isinstance(offer, NotNow), action_id
            assert offer.why == "topic orders is gone: the cluster has no topic of this name"

    shown(look, two_topics())


@staged(shown, "connecting")
async def test_a_topic_is_not_said_to_be_gone_before_any_was_read(driven: Driven, /) -> None:
    driven.main.go_to(Location("partitions", topic="orders"))
    await driven.settled()
    assert not driven.app.board.has_metadata
    offer = offered(driven, "topic.grow")
    assert not isinstance(offer, NotNow) or "gone" not in offer.why


def test_a_topic_whose_row_is_still_there_in_a_frozen_view_is_said_to_be_gone() -> None:
    async def look(driven: Driven) -> None:
        await driven.press("3", "space")
        assert driven.main.model.put_cursor_on("orders")
        for name in ("orders", "clicks"):
            driven.feed.cluster.delete_topic(name)
        await driven.tick()
        for action_id in (*OF_TOPICS, "topic.delete"):
            offer = offered(driven, action_id)
            assert isinstance(offer, NotNow) and offer.why.startswith("topic orders is gone"), action_id
        assert not isinstance(offered(driven, "topic.create"), NotNow)
        await driven.press("T")
        offer = offered(driven, "topic.delete")
        assert isinstance(offer, NotNow) and offer.why.endswith("of this name, and so is 1 other")

    shown(look, two_topics())


@pytest.mark.parametrize("key", ["2", "3", "4"])
@staged(shown)
async def test_where_a_filter_leaves_no_row_nothing_is_elected(driven: Driven, /, key: str) -> None:
    await driven.press(key, "slash")
    await driven.type("nothing-like-it")
    await driven.press("enter")
    for action_id in ELECTIONS:
        assert isinstance(offered(driven, action_id), NotNow)


@staged(shown)
async def test_a_broker_that_should_lead_nothing_is_not_all_brokers(driven: Driven, /) -> None:
    idle = SimpleNamespace(id=99)
    driven.main.go_to(Location("brokers"))
    assert isinstance(offer_for("leader.elect", driven.main.view, [idle]), NotNow)


@staged(shown)
async def test_only_the_overview_elects_among_all(driven: Driven, /) -> None:
    assert offered(driven, "leader.elect") == Elect(ElectionType.PREFERRED, ElectionScope())
    assert isinstance(offered(driven, "leader.elect_unclean"), NotNow)


def test_a_deletion_and_a_cancellation_lead_with_the_sum_of_what_they_do() -> None:
    async def look(driven: Driven) -> None:
        await driven.press("3")
        assert driven.main.model.put_cursor_on("orders")
        driven.main.model.toggle_tag()
        assert driven.main.model.put_cursor_on("clicks")
        driven.main.model.toggle_tag()
        offer = offered(driven, "topic.delete")
        assert isinstance(offer, DeleteTopics)
        assert offer.holds == "18 partitions, 108 GB on all brokers"

    shown(look)
    moving = FakeCluster(5, {"orders": 3})
    moving.reassign(TopicPartition("orders", 0), (1, 4, 5))
    moving.reassign(TopicPartition("orders", 1), (2, 3, 5))
    cluster = moving.frame().cluster
    assert cluster is not None
    total = cancel_sum(cluster.topics[0].partitions)
    assert total == "3 new replicas given up: 1 on broker 4, 2 on broker 5"


def test_an_election_leads_with_the_sum_of_what_it_does() -> None:
    able = [(0, 2)] * 10 + [(1, 2)] * 10 + [(3, 2)] * 12 + [(2, 3)]
    assert sum_of(able, {0: 20, 1: 20, 2: 1, 3: 20}) == (
        "33 leaders: broker 2 from 1 to 32, broker 0 from 20 to 10, broker 1 from 20 to 10, broker 3 from 20 to 9"
    )
    assert sum_of([(1, 2)], {1: 3}) == "1 leader: broker 2 from 0 to 1, broker 1 from 3 to 2"
    assert sum_of([(1, 2)], {}) == "1 leader: broker 2 gets 1, broker 1 loses 1"
    total = sum_of([(0, broker) for broker in range(1, 30)], {})
    assert total.endswith("broker 12 gets 1, and 18 other brokers") and total.count("gets") == 12
    assert sum_of([(1, 2), (2, 1)], {1: 1, 2: 1}) == "2 leaders: each broker has as many as before"
    assert sum_of([(NO_LEADER, 2)], {}) == "1 leader: broker 2 gets 1", "nobody knows how many it leads"


def test_a_result_leads_with_how_many_rows_have_which_result() -> None:
    rows = [(Cell(f"orders-{number}"), Cell("failed" if number == 3 else "elected")) for number in range(5)]
    assert Outcome("Elect", ("partition", "result"), tuple(rows)).counts == "4 elected, 1 failed"
    assert not Outcome("Elect", ("partition", "result"), tuple(rows[:1])).counts, "one row says it itself"


def test_the_record_at_which_members_stood_is_stepped_over_once_they_have_left() -> None:
    """Nobody may set offsets while they live: the offer is needed when nobody reads any more."""

    async def look(driven: Driven) -> None:
        cluster, held = driven.feed.cluster, TopicPartition("orders", 3)
        cluster.add_group("stuck", "orders", reads=cluster.rate, lag=50)
        cluster.stop_at("stuck", held, 5)
        await driven.tick(30)

        def prefilled() -> list[str]:
            asked = offered(driven, "group.reset")
            assert isinstance(asked, Ask)
            return [field.value for field in asked.fields]

        assert prefilled() == ["orders:3", "+1"]
        cluster.leave("stuck")
        await driven.tick(30)
        assert driven.lines_with("group stuck STOP"), driven.text
        assert prefilled() == ["orders:3", "+1"]
        assert "step over it (O), then start" in " ".join(driven.text.split()), driven.text
        await driven.press("enter")
        driven.main.go_to(Location("group", group="stuck", row="orders-3"))
        await driven.settled()
        assert prefilled() == ["orders:3", "+1"]
        driven.main.go_to(Location("group", group="stuck", row="orders-2"))
        await driven.settled()
        assert prefilled() == ["orders:2", ""], "no record held it up"
        cluster.stop_at("stuck", held, 6)
        await driven.tick(2)
        driven.main.go_to(Location("group", group="stuck", row="orders-3"))
        await driven.settled()
        assert prefilled() == ["orders:3", ""], "the step was made"
        (problem,) = [problem for problem in problems_of(driven.app.board) if problem.key == "group stuck"]
        assert problem.examples[0].startswith("orders-3, "), "nobody reads it, though its verdict takes some looks"
        assert " and 3 more: " in problem.examples[0]

    shown(look, FakeFeed(FakeCluster(3, {"orders": 6}), plays=False))


@pytest.mark.parametrize("nothing", ["", " "])
def test_offsets_set_to_nowhere_are_refused_in_the_words_of_the_field(nothing: str) -> None:
    with pytest.raises(BadRequest, match="say where to") as refused:
        ResetOffsets.of("billing", "*", nothing)
    assert refused.value.hint == RESET_HINT


def test_a_form_shows_a_rate_as_it_is_typed() -> None:
    assert [typed_rate(rate) for rate in (None, 0, 1_234, 300_000, 50_000_000)] == ["", "", "1234", "300k", "50M"]


def test_why_works_on_the_screen_of_moves() -> None:
    async def look(driven: Driven) -> None:
        driven.main.go_to(Location("reassignments"))
        await driven.settled()
        await driven.press("w")
        assert driven.app.screen is driven.main, "nothing moves"
        frame = driven.app.board.frame
        reason = HealthReason(Check.LEAKED_THROTTLES, Severity.WARNING, 1, ("topic t: x=*",))
        report = HealthReport(HealthStatus.WARNING, (reason,))
        driven.app.take(replace(frame, sequence=frame.sequence + 1, health=report, events=()))
        await driven.settled()
        await driven.press("w")
        await driven.sees("1 throttle setting left  topic t: x=*")
        assert isinstance(driven.app.screen, TextDialog)

    shown(look, FakeFeed(FakeCluster(3, {"orders": 6}), plays=False))


@staged(shown)
async def test_where_nothing_moves_there_is_no_throttle_to_change(driven: Driven, /) -> None:
    driven.main.go_to(Location("reassignments"))
    for action_id in ("reassignment.throttle", "reassignment.cancel"):
        assert offered(driven, action_id) == NotNow("nothing is being moved"), action_id
