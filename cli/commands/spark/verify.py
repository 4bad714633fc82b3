"""``klamm spark verify``."""

from __future__ import annotations

from cli.commands.spark.shared import SessionOptions, group, open_spark, tasks_shown
from cli.framework.invocation import Invocation
from cli.framework.option_values import VerifiedTopics
from cli.framework.options import Asks, Needs
from cli.output.report import Report


@group.command(
    "verify",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, bounded=False),
    examples=(
        "klamm spark verify --topic orders",
        "klamm spark verify --master spark://head:7077 -b kafka-1:9092 -o json | jq '.[] | select(.first_difference)'",
    ),
)
def verify(invocation: Invocation, *, topic: VerifiedTopics = None, session: SessionOptions) -> Report:
    """Compare every replica of every partition, batch by batch, as a Spark job.

    It prints what klamm replicas verify prints. Large partitions are cut into ranges of offsets, which executors
    compare side by side; they must reach the brokers, and their Python needs the package crc32c. Exits with 1 when
    replicas differ, or one of them could not be read.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from cli.views.replicas import verification_report
    from engine.admin.topics.selection import select_topics
    from engine.spark.replica_check import RangeTask, plan_verification, verify_ranges

    async def plan(parallelism: int) -> list[RangeTask]:
        async with open_cluster(invocation) as cluster, asyncio.timeout(invocation.timeout_s):
            return await plan_verification(cluster, select_topics(topic or []), parallelism)

    # Ask the cluster first: it answers long before Spark has started.
    asyncio.run(plan(1))
    with open_spark(invocation, session, name="klamm spark verify") as spark:
        tasks = asyncio.run(plan(spark.sparkContext.defaultParallelism))
        with tasks_shown(invocation, spark):
            results = verify_ranges(spark, tasks)
    return verification_report(results)
