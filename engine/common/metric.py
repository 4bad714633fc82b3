"""A figure for monitoring, and the text in which Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge, or a counter: its samples with their labels. What is not known has no sample."""

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    type: str = "gauge"


def metrics_of(
    rows: Iterable[tuple[Mapping[str, str], object]], prefix: str, figures: Iterable[tuple[str, str, str]]
) -> list[Metric]:
    """Return a metric for each figure; a value of None has no sample.

    Args:
        rows: labels, and the object that has the attributes.
        figures: the attribute, what follows ``prefix`` in the name of the metric, and its help.
    """
    rows = list(rows)
    return [
        Metric(
            f"{prefix}{name}",
            text,
            [(labels, float(value)) for labels, row in rows if (value := getattr(row, attribute)) is not None],
        )
        for attribute, name, text in figures
    ]


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Return a page for a scraper."""
    return "".join(prometheus_lines(metrics))


def prometheus_lines(metrics: Iterable[Metric]) -> Iterator[str]:
    """Yield Prometheus' text format, version 0.0.4."""
    for metric in metrics:
        if metric.samples:
            yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n"
        for labels, value in metric.samples:
            shown = ",".join(f'{name}="{label_text(text)}"' for name, text in labels.items())
            yield f"{metric.name}{f'{{{shown}}}' if shown else ''} {value:.15g}\n"


def label_text(text: str) -> str:
    """Return the value of a label, escaped."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
