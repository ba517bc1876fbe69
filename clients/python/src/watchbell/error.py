"""What goes wrong: each exception is one thing to do next.

Those that a server answers are `Problem`s, with what the server said. Those that a handler raises say what is to become of
its run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Tuple


class WatchbellError(Exception):
    """All that this library raises, but for what handlers raise themselves."""


class Unreachable(WatchbellError):
    """No server answers: start one, correct the URL, or try again later.

    `may_be_done` says whether what was asked for may have been done: the request left, and its answer was lost.
    """

    def __init__(self, text: str, *, may_be_done: bool = False) -> None:
        super().__init__(text)
        self.may_be_done = may_be_done
        # The server had closed a connection that rested: it is no sign that it is gone.
        self.was_resting = False


class BadAnswer(WatchbellError):
    """Something else answers there, or a server of another version: correct the URL."""


@dataclass(frozen=True)
class BadField:
    """A field that is wrong, as a JSON pointer or the name of a parameter, and what would be right."""

    where: str
    detail: str


class Problem(WatchbellError):
    """A server said no. `kind` is for programs, such as `old-incarnation`; the text is for people."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str = "",
        errors: Sequence[BadField] = (),
        retry_after: Optional[float] = None,
        request_id: Optional[str] = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.errors: Tuple[BadField, ...] = tuple(errors)
        self.retry_after = retry_after
        self.request_id = request_id


class Unauthorized(Problem):
    """401: give a key, or another one."""


class Forbidden(Problem):
    """403: ask an admin for a key that may do this."""


class NotFound(Problem):
    """404: there is no such thing, or it has ended."""


class Conflict(Problem):
    """409, 412: it is so already, or somebody changed it: read again, and decide anew."""


class Refused(Problem):
    """400, 413, 415, 422: change what was asked for; `errors` names each bad field."""


class LimitReached(Problem):
    """429: there are too many; try again after `retry_after` seconds, if that is told."""


class Unavailable(Problem):
    """5xx: try again, after `retry_after` seconds if that is told. What was asked for may have been done."""


class Superseded(WatchbellError):
    """A later life of this worker was heard: another process has its name, or the clock was set back. This one has stopped."""


class Unreported(WatchbellError):
    """A worker has ended, and no server took these results: their runs are carried out again, or counted as dead."""

    def __init__(self, run_ids: Sequence[str]) -> None:
        super().__init__(f"no server took the results of {len(run_ids)} runs: {', '.join(run_ids[:10])}")
        self.run_ids = tuple(run_ids)


class Failed(Exception):
    """A handler raises it: the attempt failed, and this is the error text, without the name of a class."""


class GiveUp(Failed):
    """A handler raises it: the run failed, and is not tried again."""


class RetryAfter(Failed):
    """A handler raises it: the attempt failed, and the next one comes no sooner than this, up to an hour later, and no
    sooner than the pause that the run's `retry` would make: for shorter ones submit with `Retry(delay=1, backoff="constant")`.
    """

    def __init__(self, seconds: float, text: str = "") -> None:
        super().__init__(text or f"again in {seconds:g} s")
        self.seconds = seconds


class Cancelled(Exception):
    """A handler ends because it was told to. `Context.check` raises it."""


_BY_STATUS = {
    400: Refused,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: Refused,
    415: Refused,
    422: Refused,
    429: LimitReached,
}


def problem_of(status: int, told: Mapping[str, Any], retry_after: Optional[float]) -> Problem:
    """The exception for an answer that is no success."""
    kind = str(told.get("type", "")).rpartition(":")[2]
    detail = str(told.get("detail") or told.get("title") or f"the server answered {status}")
    fields = told.get("errors")
    errors = [
        BadField(str(field.get("pointer", field.get("parameter", ""))), str(field.get("detail", "")))
        for field in (fields if isinstance(fields, list) else [])
        if isinstance(field, dict)
    ]
    kind_of_error = _BY_STATUS.get(status, Unavailable if status >= 500 else Problem)
    request_id = told.get("request_id")
    return kind_of_error(
        status, detail, kind=kind, errors=errors, retry_after=retry_after, request_id=request_id
    )
