"""What ``klamm exporter`` offers besides metrics: a board for Grafana, alert rules and a scrape job for Prometheus.

The alerts of ``klamm cluster health`` come from its table of checks: each says what to do next, as the command does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cli.framework.remedies import spelled
from engine.admin.health.report import Check, Severity

JOB = "klamm"
_GUIDES: Mapping[Check, str] = {
    Check.MISSING_BROKERS: "a-broker-died",
    Check.SILENT_BROKERS: "a-broker-died",
    Check.OFFLINE_PARTITIONS: "a-broker-died",
    Check.UNDER_REPLICATED_DEAD_BROKER: "a-broker-died",
    Check.OFFLINE_LOG_DIRS: "a-disk-is-full",
    Check.FULL_LOG_DIRS: "a-disk-is-full",
    Check.RACK_VIOLATIONS: "repair-racks",
    Check.BROKERS_WITHOUT_RACK: "repair-racks",
    Check.RUNNING_REASSIGNMENTS: "move-a-topic",
    Check.UNDER_REPLICATED_MOVING: "move-a-topic",
}
_HEALTH_GUIDE = "is-the-cluster-healthy"


class _Alert(NamedTuple):
    name: str
    expr: str
    lasts: str
    severity: str
    summary: str
    todo: str
    guide: str


_STANDS = "STALL|STOP|STUCK|DATA_LOSS|AHEAD|REWIND"
_ALERTS = (
    _Alert(
        "KlammExporterDown", f'up{{job="{JOB}"}} == 0', "2m", "critical", "klamm exporter does not answer",
        "start it again: klamm exporter", "watch-with-prometheus",
    ),
    _Alert(
        "KafkaDoesNotAnswer", "klamm_cluster_up == 0", "1m", "critical", "no broker of the cluster answers",
        "see who does not answer, and why: klamm doctor; the exporter's /healthz says it, too", "a-broker-died",
    ),
    _Alert(
        "KafkaReaderStandsStill", f'kafka_consumergroup_group_status{{status=~"{_STANDS}"}} == 1', "5m", "critical",
        "{{ $labels.group }} is {{ $labels.status }}", "klamm lag --group {{ $labels.group }} --partitions",
        "a-consumer-is-stuck",
    ),
    _Alert(
        "KafkaReaderFallsBehind", 'kafka_consumergroup_group_status{status=~"WARN|BEHIND"} == 1', "15m", "warning",
        "the lag of {{ $labels.group }} never falls", "klamm lag --group {{ $labels.group }} --partitions",
        "is-anybody-behind",
    ),
    _Alert(
        "KafkaVolumeIsNearlyFull", "klamm_log_dir_usable_bytes / klamm_log_dir_total_bytes < 0.1", "5m", "critical",
        "{{ $labels.log_dir }} of broker {{ $labels.broker }} is nearly full",
        "klamm brokers log-dirs --broker {{ $labels.broker }} --summary topic", "a-disk-is-full",
    ),
    _Alert(
        "KlammCannotReadPart", "klamm_exporter_reading_failed == 1", "10m", "warning",
        "klamm exporter cannot read {{ $labels.reading }}", "klamm exporter --once -v says why; is a right missing?",
        "watch-with-prometheus",
    ),
    _Alert(
        "KlammLacksRights", "klamm_exporter_rights_missing > 0", "15m", "warning",
        "klamm exporter lacks {{ $labels.operation }} ({{ $labels.resource }}): its figures leave something out",
        "klamm exporter --once names the rights, and how an administrator allows them", "who-may-do-what",
    ),
    _Alert(
        "KlammLeavesSeriesOut", "klamm_exporter_series_left_out > 0", "10m", "warning",
        "{{ $value }} series of {{ $labels.metric }} are left out", "raise --series-max, or give --topic or --group",
        "watch-with-prometheus",
    ),
)  # fmt: skip


def _of_check(check: Check) -> _Alert:
    words = check.value.replace("_", " ")
    return _Alert(
        f"Kafka{''.join(word.capitalize() for word in check.value.split('_'))}",
        f'klamm_cluster_health_findings{{check="{check.value}"}} > 0',
        "1m" if check.severity is Severity.CRITICAL else "15m",
        check.severity.value,
        f"{words}: {{{{ $value }}}}",
        spelled(check.advice),
        _GUIDES.get(check, _HEALTH_GUIDE),
    )


def alert_rules(address: str) -> str:
    """Return Prometheus' file of rules; ``address`` is of no interest."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.lasts,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "todo": alert.todo, "guide": f"docs/guides/{alert.guide}.md"},
        }
        for alert in (*_ALERTS, *map(_of_check, Check))
    ]
    return _yaml({"groups": [{"name": JOB, "rules": rules}]})


def scrape_job(address: str) -> str:
    """Return the job for ``scrape_configs`` of Prometheus that reads the exporter at this address."""
    job = {"job_name": JOB, "scrape_interval": "15s", "static_configs": [{"targets": [address]}]}
    return _yaml({"scrape_configs": [job]})


def _yaml(document: object) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=4096)
    return text


class _Panel(NamedTuple):
    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Expressions with their legends."""
    kind: str = "timeseries"


_ROWS: Mapping[str, tuple[_Panel, ...]] = {
    "The cluster": (
        _Panel("Health (0 ok, 1 warning, 2 critical)", "none", (("klamm_cluster_health", ""),), "stat"),
        _Panel("Live brokers", "none", (("kafka_brokers", ""),), "stat"),
        _Panel("Controller", "none", (("klamm_cluster_controller_id", ""),), "stat"),
        _Panel("What klamm cluster health finds", "none", (("klamm_cluster_health_findings > 0", "{{check}}"),)),
        _Panel(
            "Unhealthy partitions", "none",
            tuple((f"klamm_cluster_{why}", why) for why in ("leaderless", "under_replicated", "below_min", "at_min")),
        ),
        _Panel(
            "Left to copy by reassignments", "bytes", (("sum(klamm_reassignment_left_bytes)", "all"),),
        ),
    ),
    "Readers": (
        _Panel("Lag", "none", (("topk(10, kafka_consumergroup_group_sum_lag)", "{{group}}"),)),
        _Panel("Longest wait", "s", (("topk(10, kafka_consumergroup_group_max_lag_seconds)", "{{group}}"),)),
        _Panel(
            "Who stands still", "none",
            ((f'kafka_consumergroup_group_status{{status=~"{_STANDS}|WARN|BEHIND"}} == 1', "{{group}} {{status}}"),),
        ),
        _Panel("Members", "none", (("topk(10, kafka_consumergroup_members)", "{{group}}"),)),
    ),
    "Topics": (
        _Panel("Records written", "wps", (("topk(10, rate(klamm_topic_end_offsets_total[5m]))", "{{topic}}"),)),
        _Panel("Size", "bytes", (("topk(10, klamm_topic_size_bytes)", "{{topic}}"),)),
    ),
    "Brokers": (
        _Panel("Leads", "none", (("klamm_broker_leaders", "{{broker}}"),)),
        _Panel("Size", "bytes", (("klamm_broker_size_bytes", "{{broker}}"),)),
        _Panel(
            "Volume in use", "percentunit",
            (("1 - klamm_log_dir_usable_bytes / klamm_log_dir_total_bytes", "{{broker}} {{log_dir}}"),),
        ),
        _Panel("Answers", "none", (("klamm_broker_up", "{{broker}}"),)),
    ),
    "Inside the brokers (klamm.metrics.listener, or the JMX exporter)": (
        _Panel(
            "Bytes in", "Bps", (('sum by (instance) (rate(kafka_server_brokertopicmetrics_bytesin_total[5m]))',
            "{{instance}}"),),
        ),
        _Panel(
            "Bytes out", "Bps", (('sum by (instance) (rate(kafka_server_brokertopicmetrics_bytesout_total[5m]))',
            "{{instance}}"),),
        ),
        _Panel(
            "Requests, 99th percentile", "ms",
            (('kafka_network_requestmetrics_totaltimems{request=~"Produce|FetchConsumer",quantile="0.99"}',
            "{{instance}} {{request}}"),),
        ),
        _Panel(
            "Idle", "percentunit", (("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "{{instance}}"),),
        ),
    ),
    "The exporter": (
        _Panel("Age of what it reports", "s", (("klamm_exporter_reading_age_seconds", "{{reading}}"),)),
        _Panel("CPU", "percentunit", ((f'rate(process_cpu_seconds_total{{job="{JOB}"}}[5m])', "{{instance}}"),)),
    ),
}  # fmt: skip
_WIDTH, _HEIGHT, _ACROSS = 8, 7, 24


def grafana_board(address: str) -> str:
    """Return a dashboard that Grafana imports; ``address`` is of no interest."""
    panels: list[dict[str, object]] = []
    y = 0
    for row, members in _ROWS.items():
        position = {"x": 0, "y": y, "w": _ACROSS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "gridPos": position, "panels": []})
        y += 1
        for index, panel in enumerate(members):
            x = _WIDTH * (index % 3)
            if index and not x:
                y += _HEIGHT
            panels.append(_drawn(len(panels) + 1, panel, {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT}))
        y += _HEIGHT
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    board = {
        "uid": "klamm-cluster",
        "title": "Kafka, by klamm",
        "tags": ["kafka", "klamm"],
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }
    return json.dumps(board, indent=2) + "\n"


def _drawn(number: int, panel: _Panel, position: Mapping[str, int]) -> dict[str, object]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + index), "expr": expr, "legendFormat": legend, "datasource": source}
        for index, (expr, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "gridPos": position,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }


PRINTERS: Mapping[str, Callable[[str], str]] = {
    "grafana": grafana_board, "alerts": alert_rules, "scrape": scrape_job,
}  # fmt: skip
