"""A member of a ring: it is told when it is its turn, by whichever server answers.

A thread says again and again that the member is there, and brings its turns; so it stays in the ring while a turn is carried out.
Of a subscription with `accept` a part is given out only once a server has acknowledged that it is this member's.
"""

from __future__ import annotations

import logging
import queue
import threading
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union
from urllib.parse import quote, urlencode

from . import clock
from .clock import read_instant
from .error import BadAnswer, Conflict, NotFound, Problem, Unreachable, WatchbellError
from .transport import Call, Servers, Transport, encode

log = logging.getLogger("watchbell")

# How long an answer waits for a turn: a member whose machine is gone is noticed so much later.
_WAIT_SECONDS = 2.0
# How much longer an answer may take. Then another server is asked, before the member counts as silent.
_ANSWER_SECONDS = 2.0
_PAUSE_SECONDS = 0.25
# Turns that wait while one is carried out; those beyond are left out.
_TURNS_WAITING_MAX = 64


@dataclass(frozen=True)
class Turn:
    """A part of a turn that this member has.

    `slot` is the instant of which it is the turn, and `at` when it is to be carried out: later, if the subscription has a splay.
    `token` grows from turn to turn: whatever is acted upon refuses a smaller one than it has seen.
    """

    subscription: str
    generation: int
    number: int
    slot: datetime
    at: datetime
    part: int
    token: int
    accept: bool


class RingMember:
    """Takes part in a ring, and is told its turns.

    - `servers`, `key`, `project`, `ca`: as for a `Client`. The key needs the scope `node` or `worker`.
    - `ring`, `name`: the ring, and who this is. One name, one process: a later one ends the earlier.
    - `subscriptions`: only turns of these; of all, if none is named.

    `for turn in member.turns(): …` goes on until `stop` is called, or the loop is left; then the member leaves the ring.
    """

    def __init__(
        self,
        servers: Servers = None,
        *,
        ring: str,
        name: str,
        subscriptions: Union[str, Sequence[str]] = (),
        key: Optional[str] = None,
        project: Optional[str] = None,
        ca: Optional[str] = None,
    ) -> None:
        self.ring = ring
        self.name = name
        self._subscriptions = [subscriptions] if isinstance(subscriptions, str) else list(subscriptions)
        self._transport = Transport(servers, key, project, ca)
        self._path = f"/v1/rings/{quote(ring, safe='')}"
        self._place = 0
        self._visit: Optional[int] = None
        self._after: Optional[str] = None
        self._stopped = threading.Event()
        self._call = Call()
        self._turns: "queue.Queue[Any]" = queue.Queue()

    def stop(self) -> None:
        """Lets `turns` end, and the member leave. Any thread may call it."""
        self._stopped.set()
        self._call.abort()
        self._turns.put(None)

    def turns(self) -> Iterator[Turn]:
        """The turns of this member, as they come. Once; for another time make another member.

        Raises `Conflict` if somebody else has joined under the name since, and what a server said that refuses the member for good.
        """
        thread = threading.Thread(target=self._attend, name=f"watchbell-ring-{self.name}", daemon=True)
        thread.start()
        try:
            while True:
                told = self._turns.get()
                if told is None:
                    return
                if isinstance(told, BaseException):
                    raise told
                if self._accept(told) and not self._wait_until(told.at):
                    yield told
        finally:
            self._stopped.set()
            self._call.abort()
            thread.join(_WAIT_SECONDS + _ANSWER_SECONDS)
            self._leave()
            self._transport.close()

    def _attend(self) -> None:
        is_told = False
        while not self._stopped.is_set():
            try:
                answer = self._say()
            except Conflict as why:
                if why.kind != "member-gone":
                    self._turns.put(why)
                    return
                log.warning("member %s of %s: %s; it joins anew", self.name, self.ring, why)
                self._visit = None
                continue
            except (Unreachable, Problem) as why:
                if self._stopped.is_set():
                    return
                if isinstance(why, Problem) and why.status in (400, 401, 403, 404, 422):
                    self._turns.put(why)
                    return
                if not is_told:
                    is_told = True
                    log.warning("member %s of %s: %s; it goes on asking", self.name, self.ring, why)
                self._place += 1
                self._stopped.wait(_PAUSE_SECONDS)
                continue
            except WatchbellError as why:
                self._turns.put(why)
                return
            if is_told:
                is_told = False
                log.warning("member %s of %s: a server answers again", self.name, self.ring)
            try:
                self._take(answer)
            except (KeyError, TypeError, ValueError) as why:
                self._turns.put(BadAnswer(f"an answer lacks what is needed ({why!r}): is the server of another version?"))
                return

    def _say(self) -> Mapping[str, Any]:
        request: Dict[str, Any] = {"wait_ms": int(_WAIT_SECONDS * 1000)}
        if self._visit is not None:
            request["visit"] = self._visit
        if self._after is not None:
            request["after"] = self._after
        if self._subscriptions:
            request["subscriptions"] = self._subscriptions
        answer: Mapping[str, Any] = self._transport.exchange(
            self._place,
            "PUT",
            f"{self._path}/members/{quote(self.name, safe='')}",
            encode(request),
            timeout=_WAIT_SECONDS + _ANSWER_SECONDS,
            connect_timeout=_ANSWER_SECONDS,
            call=self._call,
        )
        return answer

    def _take(self, answer: Mapping[str, Any]) -> None:
        self._visit, self._after = answer["visit"], answer["after"]
        for told in answer["turns"]:
            if self._turns.qsize() >= _TURNS_WAITING_MAX:
                log.warning("member %s of %s: %d turns wait already; turn %d is left out", self.name, self.ring,
                            _TURNS_WAITING_MAX, told["number"])
                continue
            self._turns.put(_read_turn(told))

    def _accept(self, turn: Turn) -> bool:
        """Whether the part is this member's. If no server says so, it is not to be carried out."""
        if not turn.accept:
            return True
        sub = quote(turn.subscription, safe="")
        path = f"{self._path}/subscriptions/{sub}/turns/{turn.number}/accept"
        body = encode({"member": self.name, "part": turn.part, "generation": turn.generation})
        for place in range(self._place, self._place + len(self._transport.servers)):
            try:
                self._transport.exchange(place, "POST", path, body, timeout=_ANSWER_SECONDS)
                return True
            except (Conflict, NotFound):
                return False
            except WatchbellError as why:
                log.warning("member %s of %s: turn %d is not accepted: %s", self.name, self.ring, turn.number, why)
        return False

    def _wait_until(self, at: datetime) -> bool:
        """Waits until it is time; whether the member was stopped meanwhile."""
        return self._stopped.wait(max(0.0, (at - clock.wall()).total_seconds()))

    def _leave(self) -> None:
        if self._visit is None:
            return
        path = f"{self._path}/members/{quote(self.name, safe='')}?{urlencode({'visit': self._visit})}"
        for place in range(self._place, self._place + len(self._transport.servers)):
            try:
                self._transport.exchange(place, "DELETE", path, timeout=_ANSWER_SECONDS)
                return
            except (Conflict, NotFound):
                return
            except WatchbellError as why:
                log.warning("member %s could not leave %s: %s", self.name, self.ring, why)


def _read_turn(told: Mapping[str, Any]) -> Turn:
    return Turn(
        subscription=told["subscription"],
        generation=told["generation"],
        number=told["number"],
        slot=read_instant(told["slot"]),
        at=read_instant(told["at"]),
        part=told["part"],
        token=told["token"],
        accept=told.get("accept", False),
    )
