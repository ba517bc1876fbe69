"""Executions: one attempt of one run by a handler, and what its end is reported as."""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import threading
import traceback
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Callable, Dict, Optional

from . import clock
from .clock import instant_text
from .context import Context
from .error import Cancelled, Failed, GiveUp, RetryAfter
from .ledger import GivenRun

_ERROR_CHARS_MAX = 1_000
_RETRY_AFTER_MS_MAX = 3_600_000


@dataclass(frozen=True)
class Handler:
    """A function that carries out runs, and what makes of a payload what it takes."""

    function: Callable[[Context, Any], Any]
    payload: Optional[Callable[..., Any]]
    timeout: Optional[float]
    is_async: bool

    def read(self, payload: Any) -> Any:
        """The payload as the function takes it; `GiveUp` if it is none: another attempt would find the same."""
        if self.payload is None:
            return payload
        try:
            if dataclasses.is_dataclass(self.payload):
                if not isinstance(payload, dict):
                    # Given to the class, it would be the first field, whatever that is.
                    raise TypeError(f"{_name(self.payload)} is made of a JSON object, and this is {_json_kind(payload)}")
                return self.payload(**payload)
            return self.payload(payload)
        except Exception as why:
            raise GiveUp(f"the payload does not fit: {type(why).__name__}: {why}") from why


class Execution:
    """One attempt of one run."""

    def __init__(self, run: GivenRun, handler: Handler, changed: Callable[[Execution], None]) -> None:
        self.run = run
        self.handler = handler
        self.context = Context(run, lambda: changed(self))
        self.task: Optional[asyncio.Task[None]] = None
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.began: Optional[float] = None
        self.timeout: Optional[float] = None
        # It has a result already, although the handler may still execute.
        self.is_reported = False
        self.has_ended = False

    def begin(self, now: float) -> Optional[float]:
        """The attempt begins. Gives its deadline, if it has one."""
        self.began = now
        ms = self.run.timeout_ms
        self.timeout = self.handler.timeout if ms is None else ms / 1000
        if self.timeout is not None:
            self.context._deadline = now + self.timeout
        return self.context._deadline

    def tell_to_end(self, reason: str) -> None:
        """Tells the handler to end: a coroutine is cancelled, a function has to look."""
        if not self.context.cancelled._set(reason):
            return
        task, loop = self.task, self.loop
        if task is not None and loop is not None:
            try:
                loop.call_soon_threadsafe(self._cancel)
            except RuntimeError:
                pass  # The loop is closed, and the task with it.

    def _cancel(self) -> None:
        if self.task is not None and not self.has_ended and self.task.cancel():
            # It is thrown where the coroutine waits, or will.
            self.context.cancelled._was_thrown()

    def carry_out(self) -> Optional[BaseException]:
        """Calls a function, and gives what it raised."""
        try:
            self.handler.function(self.context, self.handler.read(self.run.payload))
        except BaseException as why:
            return why
        return None

    async def carry_out_async(self) -> Optional[BaseException]:
        """Awaits a coroutine, and gives what it raised."""
        try:
            await self.handler.function(self.context, self.handler.read(self.run.payload))
        except BaseException as why:
            return why
        finally:
            self.has_ended = True
        return None

    def result(self, raised: Optional[BaseException], now: float) -> Dict[str, Any]:
        """What the end of the handler is reported as."""
        try:
            return self._judged(raised, now)
        except Exception:
            # What it raised cannot be shown, or is not made as it should be: the run has failed all the same.
            return self._made({"result": "failed", "error": type(raised).__name__}, now)

    def _judged(self, raised: Optional[BaseException], now: float) -> Dict[str, Any]:
        told = self.context.cancelled
        reason, is_seen = told._peek(), told.is_seen
        is_stopped = isinstance(raised, (Cancelled, asyncio.CancelledError))
        deadline = self.context._deadline
        if reason == "timeout" or deadline is not None and now > deadline and reason is None:
            return self.timed_out(now)
        if reason is not None and (is_stopped or is_seen):
            word = "cancelled" if reason == "cancelled" else "stopped"
            return self._made({"result": word}, now)
        if raised is None:
            return self._made({"result": "succeeded"}, now)
        result: Dict[str, Any] = {"result": "failed", "error": error_text(raised)}
        if isinstance(raised, GiveUp):
            result["final_failure"] = True
        elif isinstance(raised, RetryAfter):
            ms = min(max(0.0, raised.seconds * 1000), _RETRY_AFTER_MS_MAX)
            result["retry_after_ms"] = int(ms)
        elif not isinstance(raised, Failed):
            # From the handler on: the frame that called it tells nothing.
            trace = raised.__traceback__.tb_next if raised.__traceback__ else None
            lines = traceback.format_exception(type(raised), raised, trace)
            self.context.output("".join(lines), "stderr")
        return self._made(result, now)

    def timed_out(self, now: float) -> Dict[str, Any]:
        """That it took too long."""
        error = f"it took longer than its timeout of {self.timeout:g} s"
        return self._made({"result": "failed", "error": error}, now)

    def stopped(self, now: float) -> Dict[str, Any]:
        """That it was begun, and its worker does not wait for its end."""
        return self._made({"result": "stopped"}, now)

    def _made(self, result: Dict[str, Any], now: float) -> Dict[str, Any]:
        if self.began is not None:
            took = max(0.0, now - self.began)
            result["started"] = instant_text(clock.wall() - timedelta(seconds=took))
            result["took_ms"] = int(took * 1000)
        return result


def _name(made: Any) -> str:
    return getattr(made, "__name__", type(made).__name__)


def _json_kind(value: Any) -> str:
    """What JSON calls it, but for objects."""
    kinds = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def error_text(raised: BaseException) -> str:
    """What went wrong, in up to 1,000 characters."""
    text = str(raised)
    if not isinstance(raised, Failed) or not text:
        name = type(raised).__name__
        text = f"{name}: {text}" if text else name
    return text.encode(errors="replace").decode()[:_ERROR_CHARS_MAX]


class ThreadPool:
    """Threads that carry out functions. They end with the process: a function that hangs does not keep it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def start(self, work: Callable[[], None]) -> None:
        """Lets a thread do it. There are at most as many threads as runs at a time, so it does not wait for another."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._threads += 1
                name = f"{self._name}-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._work.put(work)

    def close(self) -> None:
        """Ends the threads that have nothing to do, and the others when they have done it."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            work()
            with self._lock:
                self._idle += 1

