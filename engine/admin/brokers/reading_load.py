"""Asks a cluster how much its brokers carry. Only brokers report sizes; a silent broker is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from engine.admin.brokers.access import broker_reader
from engine.admin.brokers.load import BrokerLoad, LoadOfPlan, Replicas, bytes_to_copy, load_of_brokers, load_of_plan
from engine.admin.brokers.metrics import BrokerFigures, Rate, TopicFigures
from engine.admin.brokers.metrics_sources import ReadJmx
from engine.admin.brokers.reading_metrics import read_figures
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.members import read_members
from engine.admin.topics.access import topic_reader
from engine.admin.topics.describing import read_selected
from engine.admin.topics.selection import TopicSelection
from engine.common.model import TopicPartition
from engine.common.snapshot import LogDirSnapshot


async def read_broker_load(cluster: Cluster, selection: TopicSelection) -> list[BrokerLoad]:
    """Return what each broker carries of the chosen topics.

    Raises:
        NotFound: a named topic does not exist.
    """
    members = await read_members(cluster)
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    topics = await read_selected(reader, selection, if_exists=False)
    sizes = await broker_reader(cluster).sizes_of_brokers(topics, are_all=selection.is_all)
    return load_of_brokers(members.brokers, topics, sizes)


async def add_rates(
    cluster: Cluster, loads: Sequence[BrokerLoad], selection: TopicSelection, read_jmx: ReadJmx, pattern: str | None
) -> tuple[list[BrokerLoad], dict[int, str]]:
    """Return the loads with the rates of the chosen topics, and why a live broker does not report them."""
    is_all = selection.is_all
    figures = await read_figures(cluster, read_jmx, pattern=pattern, topics=not is_all)
    by_broker = {figure.broker: figure for figure in figures}
    troubles = {figure.broker: figure.trouble for figure in figures if figure.trouble is not None}
    with_rates = []
    for load in loads:
        answer = by_broker.get(load.broker)
        if answer is None or answer.trouble is not None:
            with_rates.append(load)
            continue
        topics = answer.topics or ()
        chosen = set(selection.choose(topic.topic for topic in topics))
        parts: Sequence[BrokerFigures | TopicFigures] = (
            [answer] if is_all else [topic for topic in topics if topic.topic in chosen]
        )
        with_rates.append(
            replace(
                load,
                messages_in_rate=_sum(part.messages_in for part in parts),
                bytes_in_rate=_sum(part.bytes_in for part in parts),
                bytes_out_rate=_sum(part.bytes_out for part in parts),
            )
        )
    return with_rates, troubles


def _sum(rates: Iterable[Rate]) -> float:
    """Return the rates together. A topic that had no traffic yet has none."""
    return sum(rate.now or 0.0 for rate in rates)


async def read_load_of_plan(
    cluster: Cluster, before: Replicas, after: Replicas, brokers: Iterable[int] = ()
) -> LoadOfPlan:
    """Return the load of a plan's brokers and of ``brokers``, with bytes if they are known."""
    sizes = await read_sizes(cluster, after)
    return LoadOfPlan(load_of_plan(before, after, sizes, brokers), bytes_to_copy(before, after, sizes))


async def read_sizes(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return the bytes of partitions; nothing if no broker reports them in time. Never fails."""
    return await broker_reader(cluster).sizes(partitions)


async def read_volumes(cluster: Cluster) -> Sequence[LogDirSnapshot]:
    """Return the working log dirs with their free space, without brokers that do not report it. Never fails."""
    return await broker_reader(cluster).volumes()
