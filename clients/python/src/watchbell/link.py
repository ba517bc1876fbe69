"""A line to the servers: which of them is asked, when again after a failure, and what is said about it in the log.

A worker has one for claims and one for beats, and both share a `Contact`: that no server answers is said once, and that one
does again.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import Optional

from . import clock
from .error import Problem, Unreachable, WatchbellError

log = logging.getLogger("watchbell")

_PAUSE_SECONDS = 0.1


class Contact:
    """Whether servers answer, as it is said in the log."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._gone_since: Optional[float] = None
        self.was_heard = False

    def answered(self) -> None:
        if self._gone_since is None and self.was_heard:
            return
        with self._lock:
            self.was_heard = True
            since, self._gone_since = self._gone_since, None
        if since is not None:
            log.warning("worker %s: a server answers again, after %.1f s", self._worker, clock.now() - since)

    def failed(self, why: WatchbellError) -> None:
        with self._lock:
            is_new = self._gone_since is None
            if is_new:
                self._gone_since = clock.now()
        if is_new:
            log.warning("worker %s goes on, and keeps its results: %s", self._worker, why)


class Link:
    """Which server is asked next, and when."""

    def __init__(self, servers: int, contact: Contact, pause_max: float, wish_max: float) -> None:
        self._servers = servers
        self._contact = contact
        self._pause_max = pause_max
        # A server, or what is before it, may wish for an hour: the worker has to be heard before its lease ends.
        self._wish_max = wish_max
        self._fails = 0
        self._told = ""
        self.place = 0
        # Nothing is sent before this.
        self.not_before = 0.0

    def answered(self) -> None:
        self._fails, self.not_before, self._told = 0, 0.0, ""
        self._contact.answered()

    def failed(self, why: WatchbellError) -> None:
        if isinstance(why, Unreachable) and why.was_resting:
            # The server had closed a connection that rested: the next one tells whether it is there.
            return
        self.place = (self.place + 1) % self._servers
        self._fails += 1
        if self._fails % self._servers:
            return
        rounds = self._fails // self._servers
        pause = min(_PAUSE_SECONDS * 2 ** min(rounds - 1, 10), self._pause_max)
        pause *= 0.5 + random.random() / 2
        if isinstance(why, Problem):
            pause += min(why.retry_after or 0.0, self._wish_max)
            # A first request that is refused for good ends the worker, which says more than the log.
            is_final = 400 <= why.status < 500 and why.status not in (421, 429)
            if self._told != why.kind and (self._contact.was_heard or not is_final):
                self._told = why.kind
                log.warning("a server refuses what the worker says, and is asked again: %s", why)
        else:
            self._contact.failed(why)
        self.not_before = clock.now() + pause
