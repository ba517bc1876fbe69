"""Client, worker and ring member of Watchbell.

- `Client` submits runs to queues, and asks what became of them.
- `Worker` carries runs out, by functions that are its handlers; each gets a `Context` and the payload.
- `RingMember` takes its turns in a ring.
- Each exception is one thing to do next: `error` has them all.
"""

from .client import Client
from .context import Cancellation, Context
from .error import (
    BadAnswer,
    BadField,
    Cancelled,
    Conflict,
    Failed,
    Forbidden,
    GiveUp,
    LimitReached,
    NotFound,
    Problem,
    Refused,
    RetryAfter,
    Superseded,
    Unauthorized,
    Unavailable,
    Unreachable,
    Unreported,
    WatchbellError,
)
from .record import (
    Attempt,
    Output,
    OutputChunk,
    Progress,
    Queue,
    QueuedPart,
    QueueState,
    Retry,
    Run,
    RunPart,
    RunSpec,
    Submitted,
    WorkerRecord,
)
from .ring import RingMember, Turn
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "BadAnswer",
    "BadField",
    "Cancellation",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "Failed",
    "Forbidden",
    "GiveUp",
    "LimitReached",
    "NotFound",
    "Output",
    "OutputChunk",
    "Problem",
    "Progress",
    "Queue",
    "QueueState",
    "QueuedPart",
    "Refused",
    "Retry",
    "RetryAfter",
    "RingMember",
    "Run",
    "RunPart",
    "RunSpec",
    "Submitted",
    "Superseded",
    "Turn",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Unreported",
    "WatchbellError",
    "Worker",
    "WorkerRecord",
    "__version__",
]
