"""Prometheus' text format."""

from __future__ import annotations

from engine.common.metric import Metric, prometheus_text


def test_a_page_has_help_type_and_samples_with_escaped_labels() -> None:
    odd = 'a "b" \\ c\nd'
    metrics = [
        Metric("up", "Whether it answers.", [({}, 1.0)]),
        Metric(
            "lag", "Records.", [({"group": odd, "topic": "t"}, 12345678901.0), ({"group": "g", "topic": "t"}, 0.25)]
        ),
    ]
    assert prometheus_text(metrics) == (
        "# HELP up Whether it answers.\n# TYPE up gauge\nup 1\n"
        "# HELP lag Records.\n# TYPE lag gauge\n"
        'lag{group="a \\"b\\" \\\\ c\\nd",topic="t"} 12345678901\n'
        'lag{group="g",topic="t"} 0.25\n'
    )


def test_a_metric_without_samples_is_left_out() -> None:
    assert prometheus_text([Metric("lag", "Records.", [])]) == ""
