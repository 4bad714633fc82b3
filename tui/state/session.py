"""What a dashboard is opened with: which cluster, which feed, and how it should start."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.profiles import Profiles
from engine.admin.cluster.target import ClusterTarget
from engine.admin.watch.feed import Feed
from tui.actions import Registry
from tui.state.fleet import Fleet, OpenFeed
from tui.state.log_ring import LogRing
from tui.themes import PALETTES, Palette


@dataclass(slots=True)
class Session:
    """What a dashboard is opened with.

    Attributes:
        feed: gives the frames.
        target: the cluster to change and whose znodes to read; None for a recording.
        open_feed: makes the feed of another cluster.
        profiles: the clusters that can be chosen.
        fleet: all of them, watched at the same time, where the dashboard began; ``feed`` is one of its clusters' then,
            or the fleet itself.
        problems: what the user should know at the start.
        clock: monotonic seconds.
        screenshot: draw one frame into this file and end.
    """

    feed: Feed
    target: ClusterTarget | None = None
    open_feed: OpenFeed | None = None
    is_read_only: bool = False
    page: str = "overview"
    registry: Registry = field(default_factory=Registry)
    palettes: Mapping[str, Palette] = field(default_factory=lambda: dict(PALETTES))
    theme: str = "dark"
    profiles: Profiles | None = None
    fleet: Fleet | None = None
    problems: tuple[str, ...] = ()
    log: LogRing = field(default_factory=LogRing)
    clock: Callable[[], float] = time.monotonic
    screenshot: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path.cwd)
    timeout_s: float = 30.0
    make_cluster: Callable[..., Cluster] = Cluster

    def connection(self, target: ClusterTarget) -> Cluster:
        """Return a cluster that is connected to as long as its context is open."""
        return self.make_cluster(target, timeout_s=self.timeout_s)

    @property
    def shown_fleet(self) -> Fleet | None:
        """All clusters, if they are looked at, and none is opened."""
        return self.fleet if self.feed is self.fleet else None

    @property
    def shows_fleet(self) -> bool:
        return self.shown_fleet is not None

    @property
    def why_no_changes(self) -> str:
        """Why changes are not allowed; empty if they are."""
        if self.shows_fleet:
            return "no cluster is opened: enter opens the one under the cursor"
        if self.target is None:
            return "this is not a live cluster: nothing can be changed"
        if self.is_read_only:
            return "started with --read-only"
        if self.target.is_read_only:
            return f"profile {self.target.name} is read-only"
        return "" if self.target.may_be_changed else "a snapshot cannot be changed"
