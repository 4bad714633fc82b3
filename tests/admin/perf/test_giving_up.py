"""A performance test that loses its brokers: how it goes on, and that it ends in time and says what gives it more."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import in_event_loop
from scripted_brokers import SILENCE, scripted_cluster

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import OutcomeUnknown
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.perf.producer import Load, PerfProducer
from engine.admin.perf.producer_settings import ProducerSettings
from engine.admin.perf.templates import TemplatePool, random_letters
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from engine.kafka.protocol.records.attributes import Codec


@pytest.mark.parametrize(("delivery_timeout_ms", "hint"), [(None, "timeout"), (300, "delivery.timeout.ms")])
@in_event_loop
async def test_the_limit_that_was_reached_is_named(delivery_timeout_ms: int | None, hint: str) -> None:
    async with asyncio.timeout(30), scripted_cluster(1) as brokers:
        brokers.leaders = {"t": [0]}
        brokers.brokers[0].answers[ApiKey.PRODUCE] = lambda _: SILENCE
        target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        settings = ProducerSettings(is_idempotent=False, delivery_timeout_ms=delivery_timeout_ms)
        templates = TemplatePool(random_letters(10), 16_384, Codec.NONE, None)
        async with Cluster(target, timeout_s=10) as cluster:
            test = PerfProducer(await cluster.wire(), Load(("t",), 10, give_up_s=0.3), settings, templates)
            await test.open()
            with pytest.raises(OutcomeUnknown, match=r"no broker has confirmed records within 0\.3 s") as failure:
                await test.run(lambda _: None, lambda _: None)
            assert str(failure.value.hint) == f"check: the offsets; or give it more time with {hint}"


@in_event_loop
async def test_a_connection_that_ends_while_nothing_is_in_flight_is_opened_again() -> None:
    """As when a login could not be renewed. It gave up after half a minute, with every record still to be sent."""

    def stored(request: ProduceRequest) -> ProduceResponse:
        answers = [PartitionProduceResponse(index=0, base_offset=0)]
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])

    async with asyncio.timeout(30), scripted_cluster(1) as brokers:
        brokers.leaders = {"t": [0]}
        brokers.brokers[0].answers[ApiKey.PRODUCE] = stored
        target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        templates = TemplatePool(random_letters(10), 16_384, Codec.NONE, None)
        async with Cluster(target, timeout_s=10) as cluster:
            load = Load(("t",), 3, throughput=10, give_up_s=5)
            test = PerfProducer(await cluster.wire(), load, ProducerSettings(is_idempotent=False), templates)
            await test.open()
            (link,) = test._links.values()
            broken: list[int] = []

            def on_progress(acked: int) -> None:
                if acked and not broken and not link.in_flight:
                    broken.append(acked)
                    link.client.broken("the login could not be renewed")

            await test.run(lambda _: None, on_progress)
            assert broken and test.totals.records_sent == 3
