"""How long a broker's certificate is still valid, and whether that is worth a warning."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from engine.common.quantities import counted, span_text

_DAY_MS = 86_400_000
LEFT_MS_MIN = 14 * _DAY_MS
"""With less than this left, the certificate should be renewed."""
LEFT_SHARE_MIN = 0.2
"""Certificates that live for hours are renewed by programs: those have more than this share of their life left."""


class Validity(NamedTuple):
    """From when until when a certificate is valid."""

    from_ms: int
    until_ms: int

    @classmethod
    def of(cls, certificate: Mapping[str, Any] | None) -> Validity | None:
        """Return that of a certificate as ``ssl`` describes it; None if there is none."""
        if not certificate:
            return None
        from ssl import cert_time_to_seconds

        return cls(*(cert_time_to_seconds(certificate[name]) * 1000 for name in ("notBefore", "notAfter")))

    @property
    def last_day(self) -> date:
        """The day on which it expires, in UTC."""
        return datetime.fromtimestamp(self.until_ms / 1000, UTC).date()

    def left_ms(self, now_ms: int) -> int | None:
        """Return how long it is still valid if that is worth a warning, negative if it is not any more; else None."""
        left_ms, life_ms = self.until_ms - now_ms, self.until_ms - self.from_ms
        return left_ms if left_ms < min(LEFT_MS_MIN, life_ms * LEFT_SHARE_MIN) else None


def short_lives_ms(certificates: Mapping[int, Validity], now_ms: int) -> dict[int, int]:
    """Return by broker how long its certificate is still valid, for those that are worth a warning."""
    lives = {broker: validity.left_ms(now_ms) for broker, validity in certificates.items()}
    return {broker: left_ms for broker, left_ms in lives.items() if left_ms is not None}


def expiry_text(left_ms: int) -> str:
    """Return when a certificate expires: ``expires in 3 days``."""
    if left_ms <= 0:
        return "has expired"
    days = left_ms // _DAY_MS
    return f"expires in {counted(days, 'day') if days else span_text(left_ms // 1000) or 'a moment'}"
