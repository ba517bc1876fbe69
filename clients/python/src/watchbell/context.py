"""What a handler gets: which run it is, whether it is to end, and where its output goes."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections import deque
from datetime import datetime, timedelta
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from . import clock
from .clock import instant_text, read_instant
from .error import Cancelled
from .ledger import GivenRun

# Kept, so that it can be sent again to another owner; and the most that one request may have.
OUTPUT_KEPT_BYTES = 64 * 1024
_CHUNKS_MAX = 256
_CHUNK_BYTES = 8_192
# What is printed within this time is sent under the time of its first byte, as servers keep it.
_TOGETHER = timedelta(seconds=1)
_TEXT_CHARS_MAX = 200


class Cancellation:
    """Whether a handler is to end, and why: `cancelled` by somebody, `timeout`, `lost` (another worker has the run by now),
    `unconfirmed` (no server was heard for the lease, and the run's queue has a strict one), or `stopping` (the worker ends, and
    does not wait any longer).

    A handler that has seen it and then returns is reported as having ended early; one that never looked, as what came of it.
    A coroutine has seen it when asyncio has cancelled it.
    """

    def __init__(self) -> None:
        self._reason: Optional[str] = None
        self._event: Optional[threading.Event] = None
        self._callbacks: List[Callable[[], None]] = []
        self._lock = threading.Lock()
        self.is_seen = False

    def is_set(self) -> bool:
        """Whether the handler is to end."""
        if self._reason is None:
            return False
        self.is_seen = True
        return True

    def __bool__(self) -> bool:
        return self.is_set()

    @property
    def reason(self) -> Optional[str]:
        """Why, if it is to end."""
        return self._reason if self.is_set() else None

    def wait(self, timeout: Optional[float] = None) -> bool:
        """For functions: waits until it is to end, at most so many seconds. A sleep that ends early."""
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
                if self._reason is not None:
                    self._event.set()
        self._event.wait(timeout)
        return self.is_set()

    async def wait_async(self, timeout: Optional[float] = None) -> bool:
        """For coroutines: the same. A handler itself is cancelled by asyncio where it waits; tasks that it started are not, and
        wait here."""
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            _tell(loop, is_over)

        with self._lock:
            if self._reason is None:
                self._callbacks.append(tell)
            else:
                is_over.set()
        timer = None if timeout is None else loop.call_later(timeout, is_over.set)
        try:
            await is_over.wait()
        finally:
            if timer is not None:
                timer.cancel()
            with self._lock:
                if tell in self._callbacks:
                    self._callbacks.remove(tell)
        return self.is_set()

    def _set(self, reason: str) -> bool:
        """Says so, once. The first reason stays, but for a run that is lost."""
        with self._lock:
            if self._reason is not None and reason != "lost":
                return False
            is_first, self._reason = self._reason is None, reason
            if self._event is not None:
                self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return is_first

    def _was_thrown(self) -> None:
        """A coroutine got it as an exception."""
        self.is_seen = True

    def _peek(self) -> Optional[str]:
        return self._reason


def _tell(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(event.set)
    except RuntimeError:
        pass  # The loop is closed, and nobody waits.


class _Chunk(NamedTuple):
    """Some bytes that were printed to one stream, and when the first of them was."""

    offset: int
    stream: str
    at: datetime
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    def takes(self, stream: str, at: datetime, data: bytes) -> bool:
        """Whether this may be put to it."""
        is_soon = timedelta() <= at - self.at < _TOGETHER
        return is_soon and stream == self.stream and len(self.data) + len(data) < _CHUNK_BYTES

    def to_json(self, skipped: int) -> Dict[str, Any]:
        data = self.data[skipped:]
        told = {"offset": self.offset + skipped, "stream": self.stream, "at": instant_text(self.at)}
        try:
            return {**told, "text": data.decode()}
        except UnicodeDecodeError:
            return {**told, "base64": base64.b64encode(data).decode()}


class OutputBuffer:
    """What a run printed and how far it has come, until a server has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks: Deque[_Chunk] = deque()
        self._kept = 0
        self._end = 0
        self._expected = 0
        self._progress: Optional[Dict[str, Any]] = None
        self.is_stale = False

    def print(self, stream: str, data: bytes) -> None:
        with self._lock:
            at = clock.wall()
            # A piece is not longer than a request may be.
            for begin in range(0, len(data), OUTPUT_KEPT_BYTES):
                self._append(stream, at, data[begin : begin + OUTPUT_KEPT_BYTES])

    def _append(self, stream: str, at: datetime, data: bytes) -> None:
        last = self._chunks[-1] if self._chunks else None
        # What a server may have is not changed.
        if last and last.offset >= self._expected and last.takes(stream, at, data):
            self._chunks[-1] = last._replace(data=last.data + data)
        else:
            self._chunks.append(_Chunk(self._end, stream, at, data))
        self._end += len(data)
        self._kept += len(data)
        while self._kept > OUTPUT_KEPT_BYTES or len(self._chunks) > 4 * _CHUNKS_MAX:
            self._kept -= len(self._chunks.popleft().data)

    def progress(self, told: Dict[str, Any]) -> None:
        with self._lock:
            self._progress = told

    @property
    def has_more(self) -> bool:
        """Whether there is something that no server has."""
        is_unsent = self._end > self._expected or self._progress is not None
        return is_unsent and not self.is_stale

    def request(self, token: int) -> Tuple[Dict[str, Any], Optional[Dict[str, Any]]]:
        """What is to be sent next, and the progress in it."""
        with self._lock:
            body: Dict[str, Any] = {"token": token}
            chunks: List[Dict[str, Any]] = []
            left = OUTPUT_KEPT_BYTES
            for chunk in self._chunks:
                if chunk.end <= self._expected:
                    continue
                skipped = max(0, self._expected - chunk.offset)
                left -= len(chunk.data) - skipped
                if left < 0 or len(chunks) == _CHUNKS_MAX:
                    break
                chunks.append(chunk.to_json(skipped))
            if chunks:
                body["oldest"] = self._chunks[0].offset
                body["chunks"] = chunks
            progress = self._progress
            if progress is not None:
                body["progress"] = progress
            return body, progress

    def taken(self, expected: int, progress: Optional[Dict[str, Any]]) -> None:
        """A server has it, and expects what was printed from there on."""
        with self._lock:
            self._expected = min(expected, self._end)
            if self._progress is progress:
                self._progress = None


class Context:
    """A run, as its handler sees it. Any thread may use it until the handler has ended."""

    def __init__(self, run: GivenRun, changed: Callable[[], None]) -> None:
        self._run = run
        self._changed = changed
        self._output: Optional[OutputBuffer] = None
        self._output_lock = threading.Lock()
        # Seconds of `clock.now` and of the wall, when the attempt began and when it must have ended.
        self._deadline: Optional[float] = None
        self.cancelled = Cancellation()

    @property
    def run_id(self) -> str:
        """The same in every attempt: a good idempotency key for whatever the handler acts upon."""
        return self._run.id

    @property
    def attempt(self) -> int:
        """Attempt number, from 1."""
        return self._run.attempt

    @property
    def token(self) -> int:
        """Greater than those of all attempts before: what is acted upon can refuse a smaller one."""
        return self._run.token

    @property
    def queue(self) -> str:
        """The name of the run's queue."""
        return self._run.queue

    @property
    def handler(self) -> str:
        """The name of the handler."""
        return self._run.handler or ""

    @property
    def trigger(self) -> Optional[str]:
        """The name of the run's trigger, if it has one."""
        return self._run.trigger

    @property
    def key(self) -> Optional[str]:
        """The run's concurrency key."""
        return self._run.key

    @property
    def scheduled(self) -> datetime:
        """When the run was submitted, or the slot of its trigger."""
        return read_instant(self._run.scheduled)

    @property
    def deadline(self) -> Optional[datetime]:
        """When the attempt must have ended, if it has a timeout."""
        left = self.remaining
        return None if left is None else clock.wall() + timedelta(seconds=left)

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the deadline, not less than 0."""
        return None if self._deadline is None else max(0.0, self._deadline - clock.now())

    def check(self) -> None:
        """Raises `Cancelled` if the handler is to end."""
        if self.cancelled.is_set():
            raise Cancelled(self.cancelled.reason)

    def progress(self, percent: Optional[float] = None, text: Optional[str] = None) -> None:
        """Says how far the run has come. Of several within half a second the last one is sent."""
        told: Dict[str, Any] = {}
        if percent is not None:
            told["percent"] = int(min(100, max(0, percent)))
        if text is not None:
            told["text"] = _clean(text)[:_TEXT_CHARS_MAX]
        self._buffer().progress(told)
        self._changed()

    def output(self, text: str, stream: str = "stdout") -> None:
        """Prints a text, as it is, to the run's `stdout` or `stderr`. The last 64 KiB are kept."""
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"{stream!r} is neither stdout nor stderr")
        if text:
            self._buffer().print(stream, _clean(text).encode())
            self._changed()

    def print(self, *values: object, sep: str = " ", end: str = "\n", stream: str = "stdout") -> None:
        """The same, like the `print` that you know."""
        self.output(sep.join(map(str, values)) + end, stream)

    def _buffer(self) -> OutputBuffer:
        with self._output_lock:
            if self._output is None:
                self._output = OutputBuffer()
            return self._output


def _clean(text: str) -> str:
    """Without halves of surrogate pairs, which are no text."""
    return text.encode(errors="replace").decode()
