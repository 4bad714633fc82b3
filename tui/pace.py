"""How fast frames come: how often the dashboard asks a cluster; and a recording's speed, steps and ends."""

from __future__ import annotations

from tui.main_view import MainView

REPLAY_SPEEDS = 1 / 64, 512.0


def change_rate(screen: MainView, factor: float) -> None:
    """Multiply the time between frames by a factor."""
    feed = screen.dashboard.session.feed
    playback = feed.playback
    if playback is not None:
        slowest, fastest = REPLAY_SPEEDS
        playback.set_speed(min(max(playback.speed / factor, slowest), fastest))
    else:
        feed.set_interval(feed.status.interval_s * factor)
    screen.draw_head()


def step(screen: MainView, by: int) -> None:
    """Go forward or back in a recording by this many frames."""
    playback = screen.dashboard.session.feed.playback
    if playback is not None:
        playback.step(by)


def seek(screen: MainView, *, to_end: bool) -> None:
    """Go to one end of a recording."""
    playback = screen.dashboard.session.feed.playback
    if playback is not None:
        playback.seek(playback.count - 1 if to_end else 0)
