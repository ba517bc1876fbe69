"""The worker of the list of cases that is the same for all libraries: it says on stdout what its handlers do.

WATCHBELL_SERVER (URLs with commas between), WATCHBELL_KEY, WATCHBELL_QUEUE, WATCHBELL_WORKER, CAPACITY, LEASE_MS and LABELS (`zone=b`)
say what it is to do. SIGTERM drains it. crates/cli/tests/dev/library.rs has the cases.
"""

import functools
import logging
import os
import sys
import time
from dataclasses import dataclass

try:
    from watchbell import Context, Failed, GiveUp, RetryAfter, Worker
except ImportError:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
    from watchbell import Context, Failed, GiveUp, RetryAfter, Worker

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")

worker = Worker(
    os.environ["WATCHBELL_SERVER"],
    os.environ["WATCHBELL_QUEUE"].split(","),
    name=os.environ["WATCHBELL_WORKER"],
    key=os.environ.get("WATCHBELL_KEY"),
    capacity=int(os.environ.get("CAPACITY", "4")),
    lease=int(os.environ.get("LEASE_MS", "15000")) / 1000,
    labels=dict(pair.split("=") for pair in os.environ.get("LABELS", "").split(",") if pair),
)


def say(*words: object) -> None:
    # One write, so that lines of several handlers do not mix.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def told(function):
    """Says when the handler begins, and when it has ended."""

    @functools.wraps(function)
    def handler(context, payload):
        say("begin", context.run_id, context.attempt, context.token)
        try:
            return function(context, payload)
        finally:
            say("end", context.run_id, context.attempt)

    return handler


@dataclass
class Letter:
    to: str


@worker.handler("echo")
@told
def echo(context: Context, payload: object) -> None:
    pass


@worker.handler("sleep")
@told
def sleep(context: Context, payload: dict) -> None:
    """Sleeps, and ends early when it is told to."""
    if context.cancelled.wait(payload["seconds"]):
        say("told", context.run_id, context.cancelled.reason)
        context.check()


@worker.handler("looks")
@told
def looks(context: Context, payload: object) -> None:
    """Waits until it is told to end, and returns then."""
    context.cancelled.wait()
    say("told", context.run_id, context.cancelled.reason)


@worker.handler("deaf")
@told
def deaf(context: Context, payload: dict) -> None:
    """Waits for a file, and never looks whether it is to end."""
    while not os.path.exists(payload["file"]):
        time.sleep(0.01)


@worker.handler("fail")
@told
def fail(context: Context, payload: dict) -> None:
    raise (GiveUp if payload["final"] else Failed)("no")


@worker.handler("later")
@told
def later(context: Context, payload: dict) -> None:
    if context.attempt == 1:
        raise RetryAfter(payload["ms"] / 1000, "busy")


@worker.handler("typed", payload=Letter)
@told
def typed(context: Context, payload: Letter) -> None:
    context.output(payload.to)


@worker.handler("progress")
@told
def progress(context: Context, payload: object) -> None:
    context.progress(50, "half")
    context.print("hello")


@worker.handler("die")
@told
def die(context: Context, payload: object) -> None:
    os._exit(9)


if __name__ == "__main__":
    worker.run()
    say("drained")
