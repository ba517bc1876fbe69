"""The client: one method per thing that can be asked about queues.

A request is sent again when the connection fails, when a server is not available, and when a limit passes by itself: for a
bounded time, after pauses that grow. Nothing happens twice by that: each POST carries an idempotency key, and the server
carries it out once.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union
from urllib.parse import quote, urlencode

from . import clock
from .clock import Instant, Length, instant_text, length_text
from .error import BadAnswer, Conflict, LimitReached, NotFound, Problem, Unavailable, Unreachable
from .record import (
    UNFINISHED,
    Output,
    Queue,
    Retry,
    Run,
    RunSpec,
    Submitted,
    WorkerRecord,
    read_output,
    read_queue,
    read_run,
    read_submitted,
    read_worker,
)
from .transport import Servers, Transport, encode

T = TypeVar("T")

log = logging.getLogger("watchbell")

_PAUSE_SECONDS = 0.1
# A server that is started again is asked soon.
_PAUSE_SECONDS_MAX = 2.0
_QUIET_SECONDS = 1.0
_LIMIT_RETRIES = 3


class Client:
    """Asks servers. Threads may share a client.

    `servers` is a URL, several with commas between, or a list; without it WATCHBELL_SERVER, or http://127.0.0.1:7400. Without
    `key` it is WATCHBELL_KEY, or what is in the file that WATCHBELL_KEY_FILE names. `project` is for admins. `ca` is a PEM file
    of issuers to trust instead of the system's. An answer is waited for `timeout` seconds.

    A request that no server answers, or that none can take now, is sent again for `patience` seconds; one that meets a limit,
    three times at most. `retries` is how often that is at most, to each server: 0 is never.
    """

    def __init__(
        self,
        servers: Servers = None,
        key: Optional[str] = None,
        project: Optional[str] = None,
        *,
        ca: Optional[str] = None,
        timeout: float = 30.0,
        retries: Optional[int] = None,
        patience: float = 30.0,
    ) -> None:
        self._transport = Transport(servers, key, project, ca)
        self._timeout = timeout
        self._retries = retries
        self._patience = patience
        self._place = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that rest. The client can be used again."""
        self._transport.close()

    # Runs.

    def submit(
        self,
        queue: str,
        handler: Optional[str] = None,
        payload: Any = None,
        *,
        command: Optional[Mapping[str, Any]] = None,
        priority: Optional[int] = None,
        delay: Optional[Length] = None,
        not_before: Optional[Instant] = None,
        expires_after: Optional[Length] = None,
        timeout: Optional[Length] = None,
        retry: Optional[Retry] = None,
        delivery: Optional[str] = None,
        key: Optional[str] = None,
        unique_key: Optional[str] = None,
        unique_window: Optional[Length] = None,
        pick: Optional[str] = None,
        count: Optional[int] = None,
        labels: Optional[Mapping[str, str]] = None,
        idempotency_key: Optional[str] = None,
    ) -> Submitted:
        """Lets a queue have a run. When this returns, the run is durable.

        If it raises `Unreachable` or `Unavailable`, the run may be there all the same: to try again later without a second
        run, give an `idempotency_key` of your own, which is good for a day, or a `unique_key`.
        """
        spec = RunSpec(
            handler=handler,
            payload=payload,
            command=command,
            priority=priority,
            delay=delay,
            not_before=not_before,
            expires_after=expires_after,
            timeout=timeout,
            retry=retry,
            delivery=delivery,
            key=key,
            unique_key=unique_key,
            unique_window=unique_window,
            pick=pick,
            count=count,
            labels=labels or {},
        )
        body = {"queue": queue, **spec.to_json()}
        return self._told(read_submitted, self._post("/v1/runs", body, idempotency_key))

    def submit_many(
        self, queue: str, runs: Iterable[RunSpec], *, idempotency_key: Optional[str] = None
    ) -> List[Submitted]:
        """Lets a queue have up to 1,000 runs (119 on etcd) of 256 KiB together: all or none, in their order."""
        specs = list(runs)
        for place, spec in enumerate(specs):
            if not isinstance(spec, RunSpec):
                kind = type(spec).__name__
                raise TypeError(f'submit_many takes RunSpecs, such as RunSpec("welcome", payload); run {place} is a {kind}')
        body = {"queue": queue, "runs": [spec.to_json() for spec in specs]}
        told = self._post("/v1/runs/batch", body, idempotency_key)
        return self._told(lambda told: [read_submitted(run) for run in told["runs"]], told)

    def run(self, run_id: str) -> Run:
        """The run with this id, its attempts, and why it waits if it does."""
        return self._told(read_run, self._ask("GET", _path("runs", run_id)))

    def runs(
        self,
        queue: Optional[str] = None,
        *,
        state: Union[None, str, Iterable[str]] = None,
        key: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        limit: int = 100,
    ) -> Iterator[Run]:
        """Runs, page after page of `limit`. Those of a queue that have not ended come first, then those that have, newest first; one
        that ends meanwhile comes once.
        """
        states = [state] if isinstance(state, str) else list(state or [])
        filters: Dict[str, Any] = {"key": key, "limit": limit}
        if labels:
            filters["label"] = ",".join(f"{name}={value}" for name, value in labels.items())
        if queue is None:
            yield from self._pages(read_run, "/v1/runs", {**filters, "state": ",".join(states)})
            return
        unfinished = [state for state in states if state in UNFINISHED]
        ended = [state for state in states if state not in UNFINISHED]
        given = set()
        if unfinished or not states:
            path = _path("queues", queue, "runs")
            for run in self._pages(read_run, path, {**filters, "state": ",".join(unfinished)}):
                given.add(run.id)
                yield run
        if ended or not states:
            filters = {**filters, "queue": queue, "state": ",".join(ended)}
            for run in self._pages(read_run, "/v1/runs", filters):
                if run.id not in given:
                    yield run

    def wait(self, run_id: str, timeout: float = 60.0) -> Run:
        """The run when it has ended; TimeoutError if it has not within so many seconds. It is looked at again and again, also
        while no server answers.
        """
        until, pause = clock.now() + timeout, 0.02
        while True:
            lost: Optional[Exception] = None
            try:
                run = self._told(read_run, self._ask("GET", _path("runs", run_id), until=until))
                if run.is_ended:
                    return run
                found = f"is {run.state}"
            except (Unreachable, Problem) as error:
                if not _is_worth_repeating(error):
                    raise
                lost, found = error, f"is not known to have ended ({error})"
            if clock.now() + pause > until:
                raise TimeoutError(f"{run_id} {found} after {timeout:g} s") from lost
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    def cancel(self, run_id: str) -> None:
        """Ends a run: at once if it waits; if a worker has it, that worker is told. `NotFound` if it has ended."""
        self._post(_path("runs", run_id, "cancel"))

    def retry(self, run_id: str) -> Submitted:
        """Lets a dead run wait again, as a new run."""
        return self._told(read_submitted, self._post(_path("runs", run_id, "retry")))

    def output(self, run_id: str) -> Output:
        """What a run printed last."""
        return self._told(read_output, self._ask("GET", _path("runs", run_id, "output")))

    # Queues.

    def queues(self, prefix: Optional[str] = None, *, limit: int = 100) -> Iterator[Queue]:
        """Queues in the order of names."""
        return self._pages(read_queue, "/v1/queues", {"prefix": prefix, "limit": limit})

    def queue(self, name: str) -> Queue:
        """A queue: its settings, how many wait and run, and why they wait."""
        return self._told(read_queue, self._ask("GET", _path("queues", name)))

    def set_queue(
        self,
        name: str,
        *,
        concurrency: Optional[int] = None,
        per_key: Optional[int] = None,
        rate: Optional[Tuple[int, Length]] = None,
        waiting_max: Optional[int] = None,
        alert_after: Optional[Length] = None,
        lease: Optional[str] = None,
        revision: Optional[int] = None,
    ) -> Queue:
        """Gives a queue these settings, and makes it if it is not there. What is left out is not limited any more.

        `rate` is so many runs in any stretch of so long: `(100, "1m")`. `lease` is `loose` or `strict`. With `revision` only if the
        queue is at it; otherwise `Conflict`.
        """
        spec: Dict[str, Any] = {"concurrency": concurrency, "per_key": per_key, "waiting_max": waiting_max, "lease": lease}
        if rate is not None:
            spec["rate"] = {"runs": rate[0], "per": length_text(rate[1])}
        if alert_after is not None:
            spec["alert_after"] = length_text(alert_after)
        spec = {field: value for field, value in spec.items() if value is not None}
        headers = {} if revision is None else {"if-match": f'"{revision}"'}
        told = self._ask("PUT", _path("queues", name), spec, headers)
        return self._told(read_queue, told)

    def pause_queue(
        self, name: str, *, note: Optional[str] = None, until: Optional[Instant] = None
    ) -> Queue:
        """Lets no worker have runs of the queue; what executes goes on. `Conflict` if it is so already."""
        body: Dict[str, Any] = {} if note is None else {"note": note}
        if until is not None:
            body["until"] = instant_text(until)
        return self._told(read_queue, self._post(_path("queues", name, "pause"), body))

    def resume_queue(self, name: str) -> Queue:
        """Lets workers have runs of a paused queue again."""
        return self._told(read_queue, self._post(_path("queues", name, "resume")))

    def delete_queue(self, name: str) -> None:
        """Deletes a queue that has no unfinished run, and its dead runs."""
        self._delete(_path("queues", name))

    # Workers.

    def workers(self) -> List[WorkerRecord]:
        """The workers that were heard of, by name."""
        return list(self._pages(read_worker, "/v1/workers", {}))

    def worker(self, name: str) -> WorkerRecord:
        """A worker, with the runs that it has."""
        return self._told(read_worker, self._ask("GET", _path("workers", name)))

    def drain(self, worker: str) -> WorkerRecord:
        """Lets a worker, as it lives now, have nothing more, and tells it so: it finishes what it has, and ends."""
        return self._told(read_worker, self._post(_path("workers", worker, "drain")))

    def undrain(self, worker: str) -> None:
        """Lets a worker have runs again."""
        self._delete(_path("workers", worker, "drain"))

    # How it asks.

    def _post(
        self, path: str, body: Optional[Dict[str, Any]] = None, key: Optional[str] = None
    ) -> Any:
        headers = {"idempotency-key": key or secrets.token_hex(16)}
        return self._ask("POST", path, body, headers)

    def _delete(self, path: str) -> None:
        doubts: List[Exception] = []
        try:
            self._ask("DELETE", path, doubts=doubts)
        except NotFound:
            # An attempt before this one may have deleted it.
            if not doubts:
                raise

    def _pages(
        self, read: Callable[[Mapping[str, Any]], T], path: str, filters: Dict[str, Any]
    ) -> Iterator[T]:
        query = {name: value for name, value in filters.items() if value}
        while True:
            told = self._ask("GET", f"{path}?{urlencode(query)}" if query else path)
            yield from self._told(lambda told: [read(item) for item in told["items"]], told)
            if not told.get("next"):
                return
            query["cursor"] = told["next"]

    def _told(self, read: Callable[[Any], T], told: Any) -> T:
        try:
            return read(told)
        except (KeyError, TypeError, ValueError, AttributeError) as why:
            raise BadAnswer(f"an answer lacks what is needed ({why!r}): is the server of another version?") from why

    def _ask(
        self,
        method: str,
        path: str,
        body: Optional[Dict[str, Any]] = None,
        headers: Optional[Dict[str, str]] = None,
        doubts: Optional[List[Exception]] = None,
        until: Optional[float] = None,
    ) -> Any:
        """Asks until there is an answer, asking again is of no use, or it is `until`. `doubts` gets what may have been done before."""
        data = None if body is None else encode(body)
        doubts = [] if doubts is None else doubts
        begun, tried, limited, servers, is_told = clock.now(), 0, 0, len(self._transport.servers), False
        retries = _LIMIT_RETRIES if self._retries is None else self._retries
        last = begun + self._patience if until is None else min(until, begun + self._patience)
        while True:
            place = self._place
            timeout = self._timeout if until is None else min(self._timeout, max(1.0, until - clock.now()))
            try:
                return self._transport.exchange(
                    place, method, path, data, headers, timeout=timeout, connect_timeout=min(5.0, timeout)
                )
            except (Unreachable, Unavailable, LimitReached, Problem) as error:
                if isinstance(error, Conflict) and error.status == 412 and doubts and method == "PUT":
                    found = self._ask("GET", path)
                    if _is_ours(found, body, headers):
                        return found
                if not _is_worth_repeating(error):
                    raise
                if isinstance(error, Unreachable) and error.was_resting:
                    doubts.append(error)
                    continue
                tried += 1
                limited += isinstance(error, LimitReached)
                self._place = (place + 1) % servers
                wish = getattr(error, "retry_after", None) or 0.0
                pause = self._pause(tried // servers, wish) if tried % servers == 0 else 0.0
                is_late = clock.now() + pause > last
                counted = limited if self._retries is None else tried
                if counted >= (retries + 1) * servers or is_late:
                    if doubts and isinstance(error, Unreachable):
                        error.may_be_done = True
                    raise
                if getattr(error, "may_be_done", isinstance(error, Unavailable)):
                    doubts.append(error)
                if not is_told and clock.now() - begun >= _QUIET_SECONDS:
                    is_told = True
                    log.warning("%s; it is asked again for up to %.0f s", error, last - clock.now())
                time.sleep(pause)

    def _pause(self, rounds: int, wish: float) -> float:
        own: float = min(_PAUSE_SECONDS * 2 ** (rounds - 1), _PAUSE_SECONDS_MAX)
        return wish + own * (0.5 + random.random() / 2)


def _is_worth_repeating(error: Exception) -> bool:
    if isinstance(error, Unreachable):
        return True
    if isinstance(error, LimitReached):
        # A limit that says no time does not pass by itself.
        return error.retry_after is not None
    # 421: this server takes no requests, and another one may.
    return isinstance(error, Problem) and error.status in (421, 502, 503, 504)


def _is_ours(found: Any, body: Optional[Dict[str, Any]], headers: Optional[Dict[str, str]]) -> bool:
    """Whether a queue is as a PUT whose answer was lost would have left it."""
    tag = (headers or {}).get("if-match", "").strip('"')
    return tag.isdigit() and found.get("revision") == int(tag) + 1 and found.get("spec") == body


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)
