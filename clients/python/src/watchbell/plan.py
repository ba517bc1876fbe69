"""What a worker was made with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional

from .execution import Handler
from .transport import Transport


@dataclass(frozen=True)
class Plan:
    """Everything that a life of it is given."""

    name: str
    queues: List[str]
    capacity: int
    lease: float
    grace: float
    drain_timeout: Optional[float]
    labels: Dict[str, str]
    handlers: Dict[str, Handler]
    transport: Transport
