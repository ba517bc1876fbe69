"""Time: the clock that leases count by, and texts for lengths and instants."""

from __future__ import annotations

import math
import re
import time
from datetime import datetime, timedelta, timezone
from typing import Optional, Union

Length = Union[str, int, float, timedelta]
Instant = Union[str, datetime]

_BOOTTIME: Optional[int] = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds by a clock that never steps, and that counts while the machine sleeps, where there is one."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def wall() -> datetime:
    """What time it is for people."""
    return datetime.now(timezone.utc)


def length_text(length: Length) -> str:
    """A length of time as servers read it. Numbers are seconds; parts of one are rounded up."""
    if isinstance(length, str):
        return length
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{length!r} is no length of time")
    return f"{math.ceil(seconds)}s"


def instant_text(instant: Instant) -> str:
    """An instant as servers read it."""
    if isinstance(instant, str):
        return instant
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone: is it UTC?")
    return instant.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$")


def read_instant(text: str) -> datetime:
    """An instant as servers write it, to the microsecond."""
    found = _RFC3339.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no instant")
    whole, fraction, zone = found.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    return datetime.fromisoformat(f"{whole}.{micros}{'+00:00' if zone == 'Z' else zone}")
