"""A figure for monitoring, and the text in which Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One gauge: its samples with their labels. What is not known has no sample."""

    name: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Return a page for a scraper."""
    return "".join(prometheus_lines(metrics))


def prometheus_lines(metrics: Iterable[Metric]) -> Iterator[str]:
    """Yield Prometheus' text format, version 0.0.4."""
    for metric in metrics:
        if metric.samples:
            yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} gauge\n"
        for labels, value in metric.samples:
            shown = ",".join(f'{name}="{label_text(text)}"' for name, text in labels.items())
            yield f"{metric.name}{f'{{{shown}}}' if shown else ''} {value:.15g}\n"


def label_text(text: str) -> str:
    """Return the value of a label, escaped."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
