"""``klamm replicas``: are the replicas of partitions the same?"""

from __future__ import annotations

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.option_values import VerifiedTopics
from cli.framework.options import Asks, Needs
from cli.output.report import Report

group = CommandGroup("replicas", "Compare the replicas of partitions.")


@group.command(
    "verify",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, bounded=False),
    examples=(
        "klamm replicas verify --topic orders",
        "klamm replicas verify --topic 'orders.*' --topic payments -o json | jq '.[] | select(.first_difference)'",
    ),
)
async def verify(invocation: Invocation, topic: VerifiedTopics = None) -> Report:
    """Compare every replica of every partition once, batch by batch.

    It compares what all replicas still have, up to the current high watermark, and computes the checksums itself. In
    compacted topics, and if brokers do not say which those are, only records that two replicas both have must be equal.
    Exits with 1 if replicas differ or one of them cannot be read. It asks brokers even if you name only ZooKeeper.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.framework.progress import Progress
    from cli.views.replicas import verification_report
    from engine.admin.replicas.verification import verify_topics
    from engine.admin.topics.selection import select_topics

    async with open_cluster(invocation) as cluster:
        progress, done, total = Progress(invocation.talk, "compared", "offsets"), 0, 0

        def on_total(count: int) -> None:
            nonlocal total
            total = count

        def on_offsets(count: int) -> None:
            nonlocal done
            done += count
            progress.update(done, total)

        try:
            results = await verify_topics(cluster, select_topics(topic or []), on_offsets, on_total)
        finally:
            progress.end()
    return verification_report(results)
