"""What one sends to queues, and what servers tell of runs, queues and workers.

Unknown fields of answers are left out: a newer server may tell more.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Mapping, Optional

from .clock import Instant, Length, instant_text, length_text, read_instant

Json = Mapping[str, Any]

# States in which a run has not ended.
UNFINISHED = ("waiting", "blocked", "backoff", "running")


@dataclass(frozen=True)
class Retry:
    """When a failed attempt is followed by another. What is left out is as the server has it: 3, 5 s, exponential, 5 min."""

    attempts: Optional[int] = None
    delay: Optional[Length] = None
    backoff: Optional[str] = None
    max_delay: Optional[Length] = None

    def to_json(self) -> Dict[str, Any]:
        return _present(
            attempts=self.attempts,
            delay=_length(self.delay),
            backoff=self.backoff,
            max_delay=_length(self.max_delay),
        )


@dataclass(frozen=True)
class RunSpec:
    """A run that a queue is to have. Lengths of time are seconds, a timedelta, or a text such as `1h30m`."""

    handler: Optional[str] = None
    payload: Any = None
    command: Optional[Json] = None
    priority: Optional[int] = None
    delay: Optional[Length] = None
    not_before: Optional[Instant] = None
    expires_after: Optional[Length] = None
    timeout: Optional[Length] = None
    retry: Optional[Retry] = None
    delivery: Optional[str] = None
    key: Optional[str] = None
    unique_key: Optional[str] = None
    unique_window: Optional[Length] = None
    # For how many workers it is: "any", "next" with a count, or "all".
    pick: Optional[str] = None
    count: Optional[int] = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> Dict[str, Any]:
        return _present(
            handler=self.handler,
            payload=self.payload,
            command=None if self.command is None else dict(self.command),
            priority=self.priority,
            delay=_length(self.delay),
            not_before=None if self.not_before is None else instant_text(self.not_before),
            expires_after=_length(self.expires_after),
            timeout=_length(self.timeout),
            retry=None if self.retry is None else self.retry.to_json(),
            delivery=self.delivery,
            key=self.key,
            unique_key=self.unique_key,
            unique_window=_length(self.unique_window),
            pick=self.pick,
            count=self.count,
            labels=dict(self.labels) or None,
        )


@dataclass(frozen=True)
class Submitted:
    """The id of a run, and whether it is new: if not, its unique key stands for it."""

    id: str
    created: bool


@dataclass(frozen=True)
class Progress:
    """How far a run has come, as its worker said."""

    percent: Optional[int]
    text: Optional[str]
    at: datetime


@dataclass(frozen=True)
class Attempt:
    """What came of one attempt."""

    at: datetime
    latency_ms: int
    error: Optional[str]
    worker: Optional[str]
    exit_code: Optional[int]


@dataclass(frozen=True)
class RunPart:
    """A part of a run that is for several workers: for whom it was chosen, and who has it or carried it out."""

    id: str
    chosen: str
    worker: Optional[str]
    state: str


@dataclass(frozen=True)
class QueuedPart:
    """What a run is as a run of a queue."""

    queue: str
    key: Optional[str]
    labels: Mapping[str, str]
    priority: Optional[int]
    worker: Optional[str]
    why: Optional[str]
    cancelling: bool
    poison: bool
    progress: Optional[Progress]
    redriven_from: Optional[str]
    # What it calls or runs: told of a run that has not ended, by `Client.run`.
    handler: Optional[str] = None
    argv: List[str] = field(default_factory=list)
    # Its parts, told by `Client.run`; or the run that it is a part of, and the worker that was chosen for it.
    parts: List[RunPart] = field(default_factory=list)
    part_of: Optional[str] = None
    chosen: Optional[str] = None


@dataclass(frozen=True)
class Run:
    """A run, from before its first attempt to its end."""

    id: str
    state: str
    slot: datetime
    attempt: int
    attempts: List[Attempt]
    trigger: Optional[str]
    name: Optional[str]
    not_before: Optional[datetime]
    ended: Optional[datetime]
    queued: Optional[QueuedPart]

    @property
    def is_ended(self) -> bool:
        """Whether it is in its last state."""
        return self.state not in UNFINISHED


@dataclass(frozen=True)
class OutputChunk:
    """Some bytes that a run printed."""

    offset: int
    stream: str
    data: bytes
    # When its first byte was printed, if its worker said so.
    at: Optional[datetime] = None


@dataclass(frozen=True)
class Output:
    """What a run printed in its last attempt, as far as it is kept: the last 64 KiB."""

    run: str
    attempt: Optional[int]
    bytes: int
    chunks: List[OutputChunk]
    progress: Optional[Progress]

    @property
    def text(self) -> str:
        """Both streams together."""
        return b"".join(chunk.data for chunk in self.chunks).decode(errors="replace")


@dataclass(frozen=True)
class QueueState:
    """How a queue stands, and why its runs wait."""

    waiting: int
    running: int
    waiting_max: int
    oldest: Optional[datetime]
    claims_waiting: int
    given_last_minute: int
    ended_last_minute: int
    dead: int
    why: Optional[str]


@dataclass(frozen=True)
class Queue:
    """A queue: its settings as servers have them, whether it is paused, and how it stands."""

    id: str
    name: str
    spec: Mapping[str, Any]
    paused: Optional[Mapping[str, Any]]
    state: Optional[QueueState]
    revision: int


@dataclass(frozen=True)
class WorkerRecord:
    """A worker, as servers heard of it. `run_ids` are told of one that is asked for by name."""

    name: str
    incarnation: int
    state: str
    heard: Optional[datetime]
    queues: List[str]
    running: int
    is_to_drain: bool
    run_ids: List[str]
    labels: Mapping[str, str] = field(default_factory=dict)


def read_submitted(told: Json) -> Submitted:
    return Submitted(told["id"], told["created"])


def read_run(told: Json) -> Run:
    queued = told.get("queued")
    return Run(
        id=told["id"],
        state=told["state"],
        slot=read_instant(told["slot"]),
        attempt=told["attempt"],
        attempts=[_read_attempt(attempt) for attempt in told["attempts"]],
        trigger=told.get("trigger"),
        name=told.get("name"),
        not_before=_instant(told.get("not_before")),
        ended=_instant(told.get("ended")),
        queued=None if queued is None else _read_queued(queued),
    )


def read_output(told: Json) -> Output:
    chunks = [
        OutputChunk(chunk["offset"], chunk["stream"], _read_bytes(chunk), _instant(chunk.get("at")))
        for chunk in told["chunks"]
    ]
    progress = _read_progress(told.get("progress"))
    return Output(told["run"], told.get("attempt"), told["bytes"], chunks, progress)


def read_queue(told: Json) -> Queue:
    state = told.get("state")
    return Queue(
        id=told["id"],
        name=told["name"],
        spec=told["spec"],
        paused=told.get("paused"),
        state=None if state is None else _read_queue_state(state),
        revision=told["revision"],
    )


def read_worker(told: Json) -> WorkerRecord:
    return WorkerRecord(
        name=told["name"],
        incarnation=told["incarnation"],
        state=told["state"],
        heard=_instant(told.get("heard")),
        queues=list(told["queues"]),
        running=told["running"],
        is_to_drain=told.get("drain") is not None,
        run_ids=[run["id"] for run in told.get("runs", [])],
        labels=told.get("labels", {}),
    )


def _read_attempt(told: Json) -> Attempt:
    return Attempt(
        at=read_instant(told["at"]),
        latency_ms=told["latency_ms"],
        error=told.get("error"),
        worker=told.get("worker"),
        exit_code=told.get("exit_code"),
    )


def _read_queued(told: Json) -> QueuedPart:
    return QueuedPart(
        queue=told["queue"],
        key=told.get("key"),
        labels=told.get("labels", {}),
        priority=told.get("priority"),
        worker=told.get("worker"),
        why=told.get("why"),
        cancelling=told.get("cancelling", False),
        poison=told.get("poison", False),
        progress=_read_progress(told.get("progress")),
        redriven_from=told.get("redriven_from"),
        handler=told.get("handler"),
        argv=told.get("argv", []),
        parts=[_read_part(part) for part in told.get("parts", [])],
        part_of=told.get("part_of"),
        chosen=told.get("chosen"),
    )


def _read_part(told: Json) -> RunPart:
    return RunPart(
        id=told["id"], chosen=told["chosen"], worker=told.get("worker"), state=told["state"]
    )


def _read_progress(told: Optional[Json]) -> Optional[Progress]:
    if told is None:
        return None
    return Progress(told.get("percent"), told.get("text"), read_instant(told["at"]))


def _read_queue_state(told: Json) -> QueueState:
    return QueueState(
        waiting=told["waiting"],
        running=told["running"],
        waiting_max=told["waiting_max"],
        oldest=_instant(told.get("oldest")),
        claims_waiting=told["claims_waiting"],
        given_last_minute=told.get("given_last_minute", 0),
        ended_last_minute=told.get("ended_last_minute", 0),
        dead=told.get("dead", 0),
        why=told.get("why"),
    )


def _read_bytes(chunk: Json) -> bytes:
    text = chunk.get("text")
    return base64.b64decode(chunk["base64"]) if text is None else text.encode()


def _instant(text: Optional[str]) -> Optional[datetime]:
    return None if text is None else read_instant(text)


def _length(length: Optional[Length]) -> Optional[str]:
    return None if length is None else length_text(length)


def _present(**fields: Any) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
