"""The worker: what it is made with, its handlers, and how it is started and drained. What it does is in `life`."""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import re
import signal
import socket
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, TypeVar, Union, overload

from .context import Context
from .execution import Handler
from .ledger import CLAIM_RUNS_MAX
from .life import Control, Life
from .plan import Plan
from .transport import Servers, Transport

P = TypeVar("P")
# What handlers return is not kept, so they may return anything.
F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """Carries out runs of queues.

    - `servers`, `key`, `project`, `ca`: as for a `Client`. The key needs the scope `worker` and no other.
    - `queues`: up to 32, in the order that it prefers.
    - `name`: one name, one process. Without it, host and process id. A worker that is started again under its former name gets
      its former runs back at once, instead of after 1.25 times the lease.
    - `capacity`: so many runs at a time, up to 1,000.
    - `lease`: so many seconds it may be silent before its runs are given to others, 1 to 86,400. It is heard five times as often.
    - `timeout`: for runs that have none; none, if it is not given.
    - `grace`: so many seconds a handler that was told to end may take before its run is reported without it.
    - `labels`: words by which people tell workers apart, such as `{"zone": "b"}`: up to 16, shown by `watchbell worker list`.
    - `drain_timeout`: so many seconds a signal, or `drain`, waits for handlers before it tells them to end; for as long as they
      take, if it is not given. A drain that servers ask for (`watchbell worker drain`) always does that.
    """

    def __init__(
        self,
        servers: Servers = None,
        queues: Union[str, Sequence[str]] = (),
        *,
        name: Optional[str] = None,
        capacity: int = 10,
        key: Optional[str] = None,
        project: Optional[str] = None,
        ca: Optional[str] = None,
        lease: float = 15.0,
        timeout: Optional[float] = None,
        grace: float = 2.0,
        drain_timeout: Optional[float] = None,
        labels: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.queues = [queues] if isinstance(queues, str) else list(queues)
        if not 1 <= len(self.queues) <= 32:
            raise ValueError(f"a worker claims from 1 to 32 queues, and these are {len(self.queues)}")
        if not 1 <= capacity <= CLAIM_RUNS_MAX:
            raise ValueError(f"capacity is from 1 to {CLAIM_RUNS_MAX}, and this is {capacity}")
        if not 1 <= lease <= 86_400:
            raise ValueError(f"lease is from 1 to 86400 seconds, and this is {lease}")
        self.name = name if name is not None else _default_name()
        self.capacity = capacity
        self.lease = lease
        self._timeout = timeout
        self._grace = grace
        self._drain_timeout = drain_timeout
        self._labels = dict(labels or {})
        self._handlers: Dict[str, Handler] = {}
        self._transport = Transport(servers, key, project, ca)
        self._incarnation = 0
        self._is_running = threading.Lock()
        # What the thread that keeps the time is told. A signal may come in the midst of anything, and this queue takes it.
        self._control: Control = queue.SimpleQueue()

    # Handlers.

    @overload
    def handler(self, name: str, *, timeout: Optional[float] = None) -> Callable[[F], F]: ...

    @overload
    def handler(
        self, name: str, *, payload: Callable[..., P], timeout: Optional[float] = None
    ) -> Callable[[Callable[[Context, P], Any]], Callable[[Context, P], Any]]: ...

    def handler(
        self, name: str, *, payload: Optional[Callable[..., Any]] = None, timeout: Optional[float] = None
    ) -> Callable[[Any], Any]:
        """Makes a function or a coroutine function the handler of this name: it gets a `Context` and the payload.

        With `payload`, a dataclass or anything that makes a value of JSON, it gets that value; a payload that does not fit is a
        final failure. `timeout` is for runs that have none.
        """
        if name in self._handlers:
            raise ValueError(f"there is a handler {name!r} already")

        def register(function: Any) -> Any:
            is_async = inspect.iscoroutinefunction(function)
            is_async = is_async or inspect.iscoroutinefunction(getattr(function, "__call__", None))
            limit = self._timeout if timeout is None else timeout
            self._handlers[name] = Handler(function, payload, limit, is_async)
            return function

        return register

    # Life.

    def run(self, *, signals: bool = True) -> None:
        """Works until it is drained. SIGTERM and SIGINT drain it, a second one tells handlers to end, and a
        third one ends it at once, without what no server has taken by then; unless `signals` is False, or this is not
        the main thread.

        Raises `Superseded` if another process has its name, what a server said if it refused the first request, and `Unreported`
        if results could not be reported.
        """
        with self._signals(signals):
            self._live(None)

    async def run_async(self, *, signals: bool = True) -> None:
        """The same in an event loop, which carries out coroutines that are handlers. Cancelling it drains the worker."""
        loop = asyncio.get_running_loop()
        with self._signals(signals):
            life = loop.run_in_executor(None, self._live, loop)
            try:
                await asyncio.shield(life)
            except asyncio.CancelledError:
                self.drain()
                await life
                raise

    def drain(self) -> None:
        """Claims nothing more, gives back what has not begun, and lets `run` return when the rest is finished and reported. Any
        thread may call it, and a signal handler too. A second call tells handlers to end, and a third one waits for nothing more."""
        self._control.put("drain")

    @contextmanager
    def _signals(self, wanted: bool) -> Iterator[None]:
        if not wanted or threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {
            number: signal.signal(number, lambda *_: self._control.put("drain"))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _live(self, loop: Optional[asyncio.AbstractEventLoop]) -> None:
        if not self._is_running.acquire(blocking=False):
            raise RuntimeError("this worker runs already")
        try:
            self._incarnation = max(self._incarnation + 1, time.time_ns() // 1000)
            plan = Plan(
                name=self.name,
                queues=self.queues,
                capacity=self.capacity,
                lease=self.lease,
                grace=self._grace,
                drain_timeout=self._drain_timeout,
                labels=self._labels,
                handlers=dict(self._handlers),
                transport=self._transport,
            )
            Life(plan, self._incarnation, self._control, loop).live()
        finally:
            while not self._control.empty():
                self._control.get()
            self._is_running.release()


def _default_name() -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "worker"
    return f"{host[:80]}-{os.getpid()}"
