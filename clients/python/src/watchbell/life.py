"""A life of a worker: the threads that claim, beat and keep the time, and the handlers that carry out runs.

The rules of the protocol are in `ledger`, which one lock guards. Around it are few threads: one claims and reports, one beats
so that the worker is heard while it works, one sends output if there is any (`printer`), and the one that called `run` keeps
the time. Functions are carried out by threads of their own, coroutines by an event loop.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import logging
import queue
import random
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union
from urllib.parse import quote

from . import clock
from .coroutines import OwnLoop
from .error import (
    BadAnswer,
    Conflict,
    LimitReached,
    Problem,
    Superseded,
    Unavailable,
    Unreachable,
    Unreported,
    WatchbellError,
)
from .execution import Execution, ThreadPool
from .ledger import CLAIM_RUNS_MAX, GivenRun, Held, Ledger, News, Request
from .link import Contact, Link
from .plan import Plan
from .printer import Printer
from .transport import Call, encode

log = logging.getLogger("watchbell")

# What the thread that keeps the time is told: to drain (`drain` by a signal or a call, which are counted, `asked` by a server),
# to look again, or what went wrong.
Control = queue.SimpleQueue[Union[None, str, BaseException]]

_WAIT_MS_MAX = 30_000
_ANSWER_SECONDS = 10.0


class Life:
    """A worker from its start to its end."""

    def __init__(
        self,
        plan: Plan,
        incarnation: int,
        control: Control,
        loop: Optional[asyncio.AbstractEventLoop],
    ) -> None:
        self._plan = plan
        self._name = plan.name
        self._handlers = plan.handlers
        self._transport = plan.transport
        self._control = control
        self._lease = plan.lease
        self._beat = plan.lease / 5
        self._lock = threading.Lock()
        self._claims = threading.Condition(self._lock)
        self._beats = threading.Condition(self._lock)
        lease_ms = int(plan.lease * 1000)
        self._ledger = Ledger(plan.name, plan.queues, incarnation, lease_ms, plan.labels)
        self._contact = Contact(plan.name)
        servers = len(self._transport.servers)
        self._claim_link = Link(servers, self._contact, min(5.0, plan.lease / 2), plan.lease / 2)
        self._beat_link = Link(servers, self._contact, min(2.0, self._beat), self._beat / 2)
        self._printer = Printer(plan.name, self._transport)
        self._pool = ThreadPool(plan.name)
        self._loop = loop
        self._own_loop: Optional[OwnLoop] = None
        # Executions by the ids of their runs, from when they were given to when their handlers have ended.
        self._live: Dict[str, Execution] = {}
        # Runs whose former attempt still executes here.
        self._after: Dict[str, Execution] = {}
        self._timers: List[Tuple[float, int, Callable[[], None], Optional[Execution]]] = []
        self._timer_count = 0
        self._last_sent = 0.0
        self._open: Optional[Tuple[Request, Call]] = None
        self._quick_answers = 0
        self._has_no_runs = True
        self._is_over = False
        self._reports_end: Optional[float] = None
        self._drain_calls = 0
        self._said_goodbye = False
        self._refused: List[str] = []

    # The thread that keeps the time.

    def live(self) -> None:
        self._start_loop()
        threads = [
            threading.Thread(target=self._guarded, args=(loop,), name=f"{self._name}-{word}", daemon=True)
            for word, loop in (("claims", self._claim_loop), ("beats", self._beat_loop))
        ]
        log.info("worker %s claims from %s", self._name, ", ".join(self._plan.queues))
        for thread in threads:
            thread.start()
        try:
            self._keep_time()
        finally:
            self._end(threads)

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as why:  # A bug: nobody would work, and nobody would know.
            self._control.put(why)

    def _keep_time(self) -> None:
        while True:
            with self._lock:
                until = self._timers[0][0] if self._timers else None
            try:
                told = self._control.get(timeout=None if until is None else max(0.0, until - clock.now()))
            except queue.Empty:
                told = None
            if isinstance(told, BaseException):
                raise told
            if told == "drain":
                self._drain_calls += 1
                self._drain()
                if self._drain_calls == 1:
                    self._limit_drain()
                elif self._drain_calls == 2:
                    self._stop_handlers()
                else:
                    self._give_up()
            elif told == "asked":
                # Without a limit: what was begun goes on to its end, however long that takes.
                self._drain()
            for action in self._due():
                action()
            if self._is_drained_now():
                return

    def _due(self) -> List[Callable[[], None]]:
        now, due = clock.now(), []
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                due.append(heapq.heappop(self._timers)[2])
        return due

    def _at(self, when: float, action: Callable[[], None], execution: Optional[Execution] = None) -> None:
        """Does something at a time. The lock is held."""
        if len(self._timers) > 2 * len(self._live) + 1_000:
            self._timers = [timer for timer in self._timers if timer[3] is None or not timer[3].has_ended]
            heapq.heapify(self._timers)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, action, execution))
        if self._timers[0][1] == self._timer_count:
            self._control.put(None)

    def _drain(self) -> None:
        with self._lock:
            if self._ledger.is_draining:
                return
            log.info("worker %s drains: %d runs are not finished", self._name, len(self._live))
            for held in self._ledger.drain():
                execution = self._after.pop(held[0], None)
                if execution is not None:
                    execution.has_ended = True
            if self._open is not None:
                # It is given nothing more: what it would be given is not named, and so never began.
                self._open[1].abort()
            self._claims.notify_all()
            self._beats.notify_all()

    def _limit_drain(self) -> None:
        timeout = self._plan.drain_timeout
        if timeout is not None:
            with self._lock:
                self._at(clock.now() + timeout, self._stop_handlers)

    def _stop_handlers(self) -> None:
        with self._lock:
            executions = list(self._live.values())
            self._at(clock.now() + self._plan.grace, self._abandon_handlers)
        for execution in executions:
            execution.tell_to_end("stopping")

    def _abandon_handlers(self) -> None:
        with self._lock:
            now = clock.now()
            for execution in list(self._live.values()):
                log.warning("worker %s leaves a handler that does not end: %s", self._name, execution.run.id)
                if not execution.is_reported:
                    execution.is_reported = True
                    self._ledger.finish(execution.run.held, execution.stopped(now))
                del self._live[execution.run.id]
            self._claims.notify_all()

    def _give_up(self) -> None:
        """Waits for nothing more: neither for handlers, nor for servers to take what came of them."""
        self._abandon_handlers()
        with self._lock:
            self._reports_end = clock.now()

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        with self._lock:
            self._is_over = True
            if self._open is not None:
                self._open[1].abort()
            self._claims.notify_all()
            self._beats.notify_all()
            executions = list(self._live.values())
        for execution in executions:
            execution.tell_to_end("stopping")
        self._printer.close()
        self._pool.close()
        for thread in threads:
            thread.join(timeout=2.0)
        if self._own_loop is not None:
            self._own_loop.stop()
        self._transport.close()

    # Speaking.

    def _claim_loop(self) -> None:
        while True:
            with self._lock:
                while not self._is_over and not self._has_to_claim():
                    self._claims.wait(self._claim_pause())
                if self._is_over:
                    return
                now = clock.now()
                wait_ms = min(_WAIT_MS_MAX, int(self._beat * 2000))
                request = self._ledger.claim(now, self._free(), wait_ms)
                self._open = (request, Call())
                self._last_sent = now
                if request.waits and self._ledger.report_at is not None:
                    # What was not taken goes with a beat, and sooner than the next one is due.
                    self._beats.notify()
            timeout = _ANSWER_SECONDS + (request.body["wait_ms"] / 1000)
            news = self._say(self._claim_link, "/v1/claim", request, timeout, self._open[1])
            with self._lock:
                self._open = None
                if news is not None and request.body["draining"]:
                    self._said_goodbye = True
            if news is not None:
                self._pace(request, news, now)
                self._take(news)
            self._look_if_draining()

    def _has_to_claim(self) -> bool:
        now = clock.now()
        if now < self._claim_link.not_before:
            return False
        if self._ledger.is_draining:
            return self._ledger.has_news(now) or not self._said_goodbye
        # A worker that could not name more takes no more.
        has_room = self._free() > 0 and self._ledger.named < CLAIM_RUNS_MAX
        return has_room or self._ledger.has_news(now)

    def _claim_pause(self) -> Optional[float]:
        now, at = clock.now(), self._claim_link.not_before
        if at <= now:
            report_at = self._ledger.report_at
            if report_at is None:
                return None
            at = report_at
        return max(0.001, at - now)

    def _free(self) -> int:
        return self._plan.capacity - len(self._live) - len(self._after)

    def _pace(self, request: Request, news: News, sent: float) -> None:
        """One empty answer at once is usual: it brings a cookie. A server that goes on like that is not asked without a pause."""
        is_quick = request.waits and not (news.runs or news.lost or news.cancel)
        is_quick = is_quick and clock.now() - sent < request.body["wait_ms"] / 2000
        self._quick_answers = self._quick_answers + 1 if is_quick else 0
        if self._quick_answers > 2:
            pause = min(1.0, 0.05 * 2 ** min(self._quick_answers - 3, 8))
            with self._lock:
                self._claim_link.not_before = clock.now() + pause * (0.5 + random.random() / 2)

    def _beat_loop(self) -> None:
        path = f"/v1/workers/{quote(self._name, safe='')}/beat"
        while True:
            with self._lock:
                while not self._is_over and not self._has_to_beat():
                    self._beats.wait(self._beat_pause())
                if self._is_over:
                    return
                now = clock.now()
                request = self._ledger.beat(now)
                self._last_sent = now
            news = self._say(self._beat_link, path, request, max(2.0, self._lease / 3), None)
            if news is not None:
                self._take(news)
            self._look_if_draining()

    def _has_to_beat(self) -> bool:
        now = clock.now()
        if now < self._beat_link.not_before or not self._ledger.named:
            return False
        return now >= self._last_sent + self._beat or self._is_claim_waiting() and self._ledger.has_news(now)

    def _beat_pause(self) -> Optional[float]:
        if not self._ledger.named:
            self._has_no_runs = True
            return None
        at = max(self._last_sent + self._beat, self._beat_link.not_before)
        report_at = self._ledger.report_at
        if self._is_claim_waiting() and report_at is not None:
            at = max(min(at, report_at), self._beat_link.not_before)
        return max(0.001, at - clock.now())

    def _is_claim_waiting(self) -> bool:
        """Results do not wait for such a claim: they go with a beat."""
        return self._open is not None and self._open[0].waits

    def _say(
        self, link: Link, path: str, request: Request, timeout: float, call: Optional[Call]
    ) -> Optional[News]:
        """Sends a request once. None, if it failed: everything is said again, under the next number."""
        try:
            connect_timeout = min(5.0, max(1.0, self._lease / 10))
            answer = self._transport.exchange(
                link.place,
                "POST",
                path,
                encode(request.body),
                timeout=timeout,
                connect_timeout=connect_timeout,
                call=call,
            )
            with self._lock:
                news = self._ledger.answered(request, answer, clock.now())
                link.answered()
                return news
        except (KeyError, TypeError) as why:
            error: WatchbellError = BadAnswer(f"an answer lacks what is needed: {why!r}")
        except WatchbellError as why:
            error = why
        with self._lock:
            if isinstance(error, Unreachable) and not error.may_be_done:
                self._ledger.unheard(request)
            else:
                self._ledger.failed(request)
            if call is None or not call.is_aborted:
                # Nobody has heard it: a beat need not wait.
                self._last_sent = 0.0
                link.failed(error)
                self._judge(error)
        return None

    def _judge(self, error: WatchbellError) -> None:
        """Stops, if going on is of no use."""
        if isinstance(error, Conflict):
            if error.kind == "old-incarnation":
                text = f"worker {self._name} stops: {error}. Has another process its name, or was the clock set back?"
                self._control.put(Superseded(text))
            return
        passes = isinstance(error, (Unreachable, Unavailable, LimitReached))
        is_421 = isinstance(error, Problem) and error.status == 421
        if not (passes or is_421 or self._contact.was_heard):
            self._control.put(error)

    # Hearing.

    def _take(self, news: News) -> None:
        for held in news.uncounted:
            log.warning("worker %s: the result of %s came too late, and did not count", self._name, held[0])
        if news.refused != self._refused:
            self._refused = news.refused
            log.warning("worker %s: there is no room for more queues: %s", self._name, ", ".join(news.refused))
        for reason, helds in (("lost", news.lost), ("cancelled", news.cancel)):
            for held in helds:
                self._tell_to_end(held, reason)
        if news.drain and not self._ledger.is_draining:
            self._control.put("asked")
        if news.runs:
            self._take_runs(news.runs)

    def _tell_to_end(self, held: Held, reason: str) -> None:
        with self._lock:
            execution = self._live.get(held[0])
            after = self._after.get(held[0])
            if after is not None and after.run.held == held:
                # It has not begun.
                del self._after[held[0]]
                self._ledger.finish(held, {"result": "cancelled"})
                self._claims.notify()
        if execution is not None and execution.run.held == held:
            execution.tell_to_end(reason)

    def _take_runs(self, runs: Sequence[GivenRun]) -> None:
        functions: List[Execution] = []
        coroutines: List[Execution] = []
        with self._lock:
            for run in runs:
                handler = self._handlers.get(run.handler or "")
                if handler is None:
                    self._ledger.finish(run.held, self._unknown(run))
                    continue
                execution = Execution(run, handler, self._printer.changed)
                former = self._live.get(run.id)
                if former is not None:
                    self._wait_for(former, execution)
                    continue
                self._live[run.id] = execution
                (coroutines if handler.is_async else functions).append(execution)
            if self._has_no_runs:
                # It beats from now on.
                self._has_no_runs = False
                self._beats.notify()
        self._start(functions, coroutines)

    def _unknown(self, run: GivenRun) -> Dict[str, Any]:
        if run.handler is None:
            error = f"worker {self._name} has handlers, and runs no commands"
        else:
            names = ", ".join(sorted(self._handlers)) or "none"
            error = f"worker {self._name} has no handler {run.handler!r}; it has: {names}"
        log.error("%s: %s", run.id, error)
        return {"result": "failed", "final_failure": True, "error": error[:1_000]}

    def _wait_for(self, former: Execution, execution: Execution) -> None:
        """The same run still executes here under an older token: that has to end first. The lock is held."""
        self._after[execution.run.id] = execution
        self._at(clock.now() + self._lease, functools.partial(self._give_up_waiting, execution))
        self._at(clock.now(), functools.partial(former.tell_to_end, "lost"))

    def _give_up_waiting(self, execution: Execution) -> None:
        with self._lock:
            if self._after.get(execution.run.id) is not execution:
                return
            del self._after[execution.run.id]
            error = "an earlier attempt still executes in this worker: its handler does not end when it is told to"
            self._ledger.finish(execution.run.held, {"result": "failed", "error": error})
            self._claims.notify()

    # Carrying out.

    def _start(self, functions: Sequence[Execution], coroutines: Sequence[Execution]) -> None:
        for execution in functions:
            self._pool.start(functools.partial(self._carry_out, execution))
        loop = self._loop
        if coroutines and loop is not None:
            try:
                loop.call_soon_threadsafe(self._start_tasks, loop, coroutines)
            except RuntimeError as why:  # It was closed while the worker runs.
                self._control.put(why)

    def _start_loop(self) -> None:
        if self._loop is None and any(handler.is_async for handler in self._handlers.values()):
            self._own_loop = OwnLoop(self._name)
            self._loop = self._own_loop.loop

    def _start_tasks(self, loop: asyncio.AbstractEventLoop, executions: Sequence[Execution]) -> None:
        for execution in executions:
            execution.loop = loop
            execution.task = loop.create_task(self._carry_out_async(execution))

    def _carry_out(self, execution: Execution) -> None:
        if self._begin(execution):
            self._ended(execution, execution.carry_out())

    async def _carry_out_async(self, execution: Execution) -> None:
        if self._begin(execution):
            self._ended(execution, await execution.carry_out_async())

    def _begin(self, execution: Execution) -> bool:
        """Whether it may begin. If not, it is given back, or reported as cancelled, and forgotten."""
        with self._lock:
            now, run = clock.now(), execution.run
            if execution.context.cancelled._peek() == "cancelled":
                self._ledger.finish(run.held, {"result": "cancelled"})
            elif self._ledger.begin(run.held, now):
                deadline = execution.begin(now)
                if deadline is not None:
                    self._at(deadline, functools.partial(self._time_out, execution), execution)
                if run.is_strict:
                    self._watch_strict(execution)
                return True
            self._forget(execution)
        return False

    def _watch_strict(self, execution: Execution) -> None:
        """Looks again when a run is confirmed no more, unless a server is heard until then. The lock is held."""
        until = self._ledger.confirmed_until(execution.run.held)
        if until is not None:
            self._at(until, functools.partial(self._look_at_strict, execution), execution)

    def _look_at_strict(self, execution: Execution) -> None:
        with self._lock:
            until = self._ledger.confirmed_until(execution.run.held)
            if execution.has_ended or until is None:
                return
            if clock.now() < until:
                return self._watch_strict(execution)
        log.warning("worker %s is not heard, and ends %s: its queue has a strict lease", self._name, execution.run.id)
        execution.tell_to_end("unconfirmed")

    def _time_out(self, execution: Execution) -> None:
        if execution.has_ended:
            return
        execution.tell_to_end("timeout")
        with self._lock:
            report = functools.partial(self._report_timed_out, execution)
            self._at(clock.now() + self._plan.grace, report, execution)

    def _report_timed_out(self, execution: Execution) -> None:
        with self._lock:
            is_current = self._live.get(execution.run.id) is execution
            if execution.has_ended or execution.is_reported or not is_current:
                return
            execution.is_reported = True
            log.warning("worker %s: the time of %s is over, and its handler does not end", self._name, execution.run.id)
            self._ledger.finish(execution.run.held, execution.timed_out(clock.now()))
            self._claims.notify()
            self._beats.notify()

    def _ended(self, execution: Execution, raised: Optional[BaseException]) -> None:
        result = execution.result(raised, clock.now())
        execution.has_ended = True
        is_told = result["result"] != "failed" or execution.is_reported
        self._printer.end(execution, functools.partial(self._report, execution, result))
        if not is_told:
            # Last: what logs may raise, and its run has ended all the same.
            self._tell_failure(execution, raised, result["error"])

    def _tell_failure(self, execution: Execution, raised: Optional[BaseException], error: str) -> None:
        # One that took too long may have raised nothing, and the text of a `Failed` lacks its class.
        kind = "" if raised is None else type(raised).__name__
        text = error if error.startswith(kind) else f"{kind}: {error}"
        log.info("%s: attempt %d failed: %s", execution.run.id, execution.run.attempt, text)

    def _report(self, execution: Execution, result: Dict[str, Any]) -> None:
        with self._lock:
            if not execution.is_reported:
                self._ledger.finish(execution.run.held, result)
            self._forget(execution)

    def _forget(self, execution: Execution) -> None:
        """Its place is free. The lock is held."""
        run_id = execution.run.id
        if self._live.get(run_id) is execution:
            del self._live[run_id]
            after = self._after.pop(run_id, None)
            if after is not None:
                self._live[run_id] = after
                is_async = after.handler.is_async
                start = functools.partial(self._start, [] if is_async else [after], [after] if is_async else [])
                self._at(clock.now(), start)
        if self._open is None:
            self._claims.notify()
        elif self._open[0].waits:
            self._beats.notify()
        self._look_if_draining()

    # Ending.

    def _look_if_draining(self) -> None:
        if self._ledger.is_draining:
            self._control.put("look")

    def _is_drained_now(self) -> bool:
        """Whether nothing is left. If servers do not take what is, it is given up in the end."""
        with self._lock:
            if not self._ledger.is_draining or self._live or self._after:
                return False
            if not self._ledger.named and self._said_goodbye:
                log.info("worker %s has drained", self._name)
                return True
            if self._reports_end is None:
                # Later than that others have been given the runs. One who only says good-bye does not wait for long.
                patience = self._lease * 1.25 if self._ledger.named else 3.0
                self._reports_end = clock.now() + patience
                self._at(self._reports_end, lambda: None)
            if clock.now() < self._reports_end:
                return False
            unreported = self._ledger.unreported
        if unreported:
            raise Unreported(unreported)
        return True
