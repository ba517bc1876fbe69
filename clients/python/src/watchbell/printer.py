"""The printer: sends what runs print, and how far they have come.

One thread sends for all runs, each at most twice a second. What a run printed last is sent before its result, as servers take
nothing of a run that is over; if no server takes it, the result goes without.
"""

from __future__ import annotations

import threading
from typing import Callable, Dict, List, Optional, Tuple
from urllib.parse import quote

from . import clock
from .error import BadAnswer, LimitReached, Problem, Unavailable, WatchbellError
from .execution import Execution
from .ledger import Held
from .transport import Transport, encode

_EVERY = 0.5
_AFTER_FAILURE = 1.0
_REQUESTS_MAX = 4
_TIMEOUT = 5.0

Ending = Tuple[Execution, Callable[[], None]]


class Printer:
    """Sends output of runs from a thread of its own."""

    def __init__(self, name: str, transport: Transport) -> None:
        self._transport = transport
        self._wake = threading.Condition()
        self._dirty: Dict[Held, Tuple[float, Execution]] = {}
        self._next: Dict[Held, float] = {}
        self._endings: List[Ending] = []
        self._is_over = False
        self._place = 0
        self._not_before = 0.0
        self._thread: Optional[threading.Thread] = None
        self._name = name

    def changed(self, execution: Execution) -> None:
        """A run has printed something."""
        held = execution.run.held
        with self._wake:
            if self._thread is None and not self._is_over:
                self._thread = threading.Thread(target=self._serve, name=f"{self._name}-output", daemon=True)
                self._thread.start()
            if held not in self._dirty:
                self._dirty[held] = (self._next.get(held, 0.0), execution)
                self._wake.notify()

    def end(self, execution: Execution, then: Callable[[], None]) -> None:
        """A handler has ended: the rest is sent, and then its result may be."""
        output = execution.context._output
        if output is None:
            return then()
        with self._wake:
            if self._thread is not None and not self._is_over:
                self._endings.append((execution, then))
                self._wake.notify()
                return
        then()

    def close(self) -> None:
        with self._wake:
            self._is_over = True
            self._wake.notify()

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._is_over and not self._endings and not self._due():
                    soonest = min((at for at, _ in self._dirty.values()), default=None)
                    self._wake.wait(None if soonest is None else max(0.0, soonest - clock.now()))
                is_over, endings, self._endings = self._is_over, self._endings, []
                due = [] if endings or is_over else self._due()
                for execution in due:
                    del self._dirty[execution.run.held]
            for execution, then in endings:
                if not is_over:
                    self._send(execution)
                with self._wake:
                    self._dirty.pop(execution.run.held, None)
                    self._next.pop(execution.run.held, None)
                then()
            for execution in due:
                self._send(execution)
                output = execution.context._output
                with self._wake:
                    self._next[execution.run.held] = clock.now() + _EVERY
                    if output is not None and output.has_more and not execution.has_ended:
                        at = max(clock.now() + _EVERY, self._not_before)
                        self._dirty.setdefault(execution.run.held, (at, execution))
            if is_over:
                return

    def _due(self) -> List[Execution]:
        now = clock.now()
        return [execution for at, execution in self._dirty.values() if at <= now]

    def _send(self, execution: Execution) -> None:
        """Sends what there is. A server that does not answer is let alone for a second."""
        output, run = execution.context._output, execution.run
        path = f"/v1/runs/{quote(run.id, safe='')}/output"
        for _ in range(_REQUESTS_MAX):
            if output is None or not output.has_more or clock.now() < self._not_before:
                return
            body, progress = output.request(run.token)
            try:
                told = self._transport.exchange(
                    self._place, "POST", path, encode(body), timeout=_TIMEOUT, connect_timeout=2.0
                )
                output.taken(int(told["next"]), progress)
            except (Unavailable, LimitReached):
                self._not_before = clock.now() + _AFTER_FAILURE
            except (Problem, BadAnswer, KeyError, TypeError, ValueError):
                # The run is another's by now, or is over; whether it is lost, claims and beats tell.
                output.is_stale = True
            except WatchbellError as why:
                if not getattr(why, "was_resting", False):
                    self._place += 1
                    self._not_before = clock.now() + _AFTER_FAILURE
