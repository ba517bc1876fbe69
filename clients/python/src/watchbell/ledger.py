"""The ledger: what a worker has, says and is told, by the rules of the protocol (docs/queues.md, "The protocol").

It sends nothing, waits for nothing and reads no clock: times are arguments, requests and answers are data. Its caller sees to
it that one thread at a time is in it.

A run is in one place at a time: `held` from when it was given until it has a result, `results` until that is acknowledged,
`released` if it never began and is given back. Every claim and beat names all three: what it does not name, the worker does
not have.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

# A run and the token under which the worker has it.
Held = Tuple[str, int]

# Runs that one request may name, and that one claim may give.
NAMED_MAX = 2_000
CLAIM_RUNS_MAX = 1_000
# A request has at most 256 KiB, of which names take up to 150 KB.
_DONE_BYTES_MAX = 64 * 1024
# So many requests are remembered by when they were sent. More than a few are never on their way.
_SENT_MAX = 1_024
_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 2.0


@dataclass(frozen=True)
class GivenRun:
    """A run that the worker was given."""

    id: str
    token: int
    attempt: int
    queue: str
    scheduled: str
    handler: Optional[str]
    payload: Any
    timeout_ms: Optional[int]
    trigger: Optional[str]
    key: Optional[str]
    # It is to end as soon as it is confirmed no more.
    is_strict: bool = False

    @property
    def held(self) -> Held:
        return (self.id, self.token)


@dataclass(frozen=True)
class Request:
    """What is to be sent, and what its answer is about."""

    number: int
    is_claim: bool
    # The answer may wait for a run.
    waits: bool
    body: Dict[str, Any]
    running: FrozenSet[Held]
    done: Sequence[Held]


@dataclass
class News:
    """What follows from an answer."""

    runs: List[GivenRun] = field(default_factory=list)
    # Their programs are to end, and what comes of them is forgotten.
    lost: List[Held] = field(default_factory=list)
    cancel: List[Held] = field(default_factory=list)
    # Results that came too late. Not those that were said before: that may have counted.
    uncounted: List[Held] = field(default_factory=list)
    refused: List[str] = field(default_factory=list)
    drain: bool = False


@dataclass
class _Pause:
    """What an owner did not take is said again after a pause, which doubles. All of a kind share one, so that what ended one
    after the other does not come one after the other again.
    """

    until: float = 0.0
    seconds: float = _PAUSE_SECONDS

    def not_taken(self, sent: float, now: float) -> None:
        """Something that a request said, which was sent then, was not taken. One that came during the pause was about other
        things: it does not put it off.
        """
        if sent >= self.until:
            self.until = now + self.seconds
            self.seconds = min(self.seconds * 2, _PAUSE_SECONDS_MAX)


@dataclass
class _HeldRun:
    confirmed_until: float
    is_begun: bool = False


@dataclass
class _Result:
    told: Dict[str, Any]
    size: int
    # In how many requests that a server may have heard.
    said: int = 0
    # Its owner could not be asked: it is said again after the pause. Any other is said at once.
    is_put_off: bool = False


class Ledger:
    """One life of a worker."""

    def __init__(
        self,
        name: str,
        queues: Sequence[str],
        incarnation: int,
        lease_ms: int,
        labels: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._name = name
        self._queues = list(queues)
        self._labels = dict(labels or {})
        self._incarnation = incarnation
        self._lease_ms = lease_ms
        self._number = 0
        self._open: Optional[int] = None
        self._cookie: Optional[str] = None
        self._sent: Dict[int, float] = {}
        self._held: Dict[Held, _HeldRun] = {}
        self._results: Dict[Held, _Result] = {}
        # Whether they are said again after the pause.
        self._released: Dict[Held, bool] = {}
        self._results_pause = _Pause()
        self._released_pause = _Pause()
        self.is_draining = False

    # What it says.

    def claim(self, now: float, free: int, wait_ms: int) -> Request:
        """The next claim. Claims before it are settled: their answers have come, or are not listened to any more."""
        if self.is_draining:
            free, wait_ms = 0, 0
        free = max(0, min(free, CLAIM_RUNS_MAX, NAMED_MAX // 2 - self.named))
        # A request with results does not wait; nor should one that gives back.
        waits = wait_ms > 0 and free > 0 and not self.has_news(now)
        self._open = None
        body = self._body(now)
        self._open = self._number
        body.update(worker=self._name, free=free, wait_ms=wait_ms if waits else 0)
        if self._cookie is not None:
            body["cookie"] = self._cookie
        if self._labels:
            body["labels"] = self._labels
        return self._request(body, is_claim=True, waits=waits)

    def beat(self, now: float) -> Request:
        """The next beat."""
        return self._request(self._body(now), is_claim=False, waits=False)

    def _body(self, now: float) -> Dict[str, Any]:
        self._number += 1
        self._sent[self._number] = now
        if len(self._sent) > _SENT_MAX:
            del self._sent[next(iter(self._sent))]
        done: List[Dict[str, Any]] = []
        running = [_name(held) for held in self._held]
        left = _DONE_BYTES_MAX
        for held, result in self._results.items():
            is_due = not result.is_put_off or now >= self._results_pause.until
            if is_due:
                left -= result.size
            # What finds no place now is named, and reported later.
            if is_due and left >= 0:
                result.said += 1
                done.append(result.told)
            else:
                running.append(_name(held))
        return {
            "incarnation": self._incarnation,
            "since": self._incarnation,
            "number": self._number,
            "settled": self._number - 1 if self._open is None else self._open - 1,
            "queues": self._queues,
            "lease_ms": self._lease_ms,
            "done": done,
            "running": running,
            "released": [_name(held) for held in self._released],
            "draining": self.is_draining,
        }

    def _request(self, body: Dict[str, Any], *, is_claim: bool, waits: bool) -> Request:
        running = frozenset((run["id"], run["token"]) for run in body["running"])
        done = [(run["id"], run["token"]) for run in body["done"]]
        return Request(self._number, is_claim, waits, body, running, done)

    # What it is told.

    def failed(self, request: Request) -> None:
        """No answer comes, or it is not listened to: everything is said again under the next number."""
        if self._open == request.number:
            self._open = None

    def unheard(self, request: Request) -> None:
        """The same of a request that certainly reached nobody: what it said was not said."""
        self.failed(request)
        for held in request.done:
            result = self._results.get(held)
            if result is not None:
                result.said -= 1

    def answered(self, request: Request, answer: Mapping[str, Any], now: float) -> News:
        """The answer to a request."""
        news = News(drain=bool(answer.get("drain")), refused=list(answer.get("refused", ())))
        self._cookie = answer["cookie"]
        self._take_acks(request, answer, now, news)
        for held in _helds(answer["lost"]):
            result = self._results.pop(held, None)
            # One that was said before may have counted then.
            if result is not None and result.said == 0:
                news.uncounted.append(held)
            if self._held.pop(held, None) is not None:
                news.lost.append(held)
        news.cancel = [held for held in _helds(answer["cancel"]) if held in self._held]
        # A number that is not remembered any more confirms nothing.
        sent = self._sent.get(answer["as_of"])
        until = -1.0 if sent is None else sent + self._lease_ms / 1000
        for held in request.running.difference(_helds(answer["unheard"])):
            known = self._held.get(held)
            if known is not None and known.confirmed_until < until:
                known.confirmed_until = until
        if request.is_claim and self._open == request.number:
            self._open = None
            self._take_runs(answer["runs"], until, news)
        return news

    def _take_acks(
        self, request: Request, answer: Mapping[str, Any], now: float, news: News
    ) -> None:
        for ack in answer["acks"]:
            held = (ack["id"], ack["token"])
            self._released.pop(held, None)
            result = self._results.pop(held, None)
            if result is not None and result.said == 1 and not ack["counted"]:
                news.uncounted.append(held)
        sent = self._sent.get(request.number, now)
        left = [held for held in request.done if held in self._results]
        for held in left:
            # Their owner could not be asked: those of others go first now.
            self._results[held] = self._results.pop(held)
            self._results[held].is_put_off = True
        if left:
            self._results_pause.not_taken(sent, now)
        elif not any(result.is_put_off for result in self._results.values()):
            self._results_pause = _Pause()
        released = [held for held in _helds(request.body["released"]) if held in self._released]
        for held in released:
            self._released[held] = True
        if released:
            self._released_pause.not_taken(sent, now)
        elif not any(self._released.values()):
            self._released_pause = _Pause()

    def _take_runs(self, runs: Sequence[Mapping[str, Any]], until: float, news: News) -> None:
        tokens = dict(self._held.keys()) if runs else {}
        for told in runs:
            run = GivenRun(
                id=told["id"],
                token=told["token"],
                attempt=told["attempt"],
                queue=told["queue"],
                scheduled=told["scheduled"],
                handler=told.get("handler"),
                payload=told.get("payload"),
                timeout_ms=told.get("timeout_ms"),
                trigger=told.get("trigger"),
                key=told.get("key"),
                is_strict=bool(told.get("strict")),
            )
            older = tokens.get(run.id)
            if older is not None:
                # Tokens only grow: the one before is never current again.
                del self._held[(run.id, older)]
                news.lost.append((run.id, older))
            self._held[run.held] = _HeldRun(confirmed_until=until)
            news.runs.append(run)

    # What becomes of runs.

    def begin(self, held: Held, now: float) -> bool:
        """Whether a run may begin. One that is not confirmed within its lease is given back, and so is one of a worker that drains."""
        known = self._held.get(held)
        if known is None:
            return False
        if self.is_draining or now >= known.confirmed_until:
            del self._held[held]
            self._released[held] = False
            return False
        known.is_begun = True
        return True

    def confirmed_until(self, held: Held) -> Optional[float]:
        """Until when the worker may act on a run without being heard; None, if it does not have it any more."""
        known = self._held.get(held)
        return None if known is None else known.confirmed_until

    def finish(self, held: Held, result: Dict[str, Any]) -> bool:
        """A run has this result; False if it was lost meanwhile."""
        if self._held.pop(held, None) is None:
            return False
        size = 160 + len(json.dumps(result["error"]) if "error" in result else "")
        self._results[held] = _Result({"id": held[0], "token": held[1], **result}, size)
        return True

    def drain(self) -> List[Held]:
        """Takes no more, and gives back what has not begun."""
        self.is_draining = True
        unbegun = [held for held, known in self._held.items() if not known.is_begun]
        for held in unbegun:
            del self._held[held]
            self._released[held] = False
        return unbegun

    # How it stands.

    @property
    def named(self) -> int:
        """How many runs a request names."""
        return len(self._held) + len(self._results) + len(self._released)

    @property
    def unreported(self) -> List[str]:
        """Ids of runs whose results are not acknowledged."""
        return [held[0] for held in self._results]

    def has_news(self, now: float) -> bool:
        """Whether there is something to report now."""
        report_at = self.report_at
        return report_at is not None and now >= report_at

    @property
    def report_at(self) -> Optional[float]:
        """When there is something to report: at once, or when what its owner did not take is to be said again."""
        results = (self._results_pause.until if result.is_put_off else 0.0 for result in self._results.values())
        released = (self._released_pause.until if is_put_off else 0.0 for is_put_off in self._released.values())
        return min(itertools.chain(results, released), default=None)


def _name(held: Held) -> Dict[str, Any]:
    return {"id": held[0], "token": held[1]}


def _helds(runs: Sequence[Mapping[str, Any]]) -> List[Held]:
    return [(run["id"], run["token"]) for run in runs]
