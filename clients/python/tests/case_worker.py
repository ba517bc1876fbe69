"""A worker for tests that are the same in all languages: it prints what its handlers do.

WATCHBELL_SERVER (URLs with commas between), WATCHBELL_KEY, WATCHBELL_QUEUE, WATCHBELL_WORKER, CAPACITY, LEASE_MS. Handlers: echo,
sleep, fail, progress, die. SIGTERM drains it.
"""

import functools
import logging
import os
import sys

try:
    from watchbell import Context, Failed, GiveUp, Worker
except ImportError:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
    from watchbell import Context, Failed, GiveUp, Worker

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")

worker = Worker(
    os.environ["WATCHBELL_SERVER"],
    os.environ["WATCHBELL_QUEUE"],
    name=os.environ["WATCHBELL_WORKER"],
    key=os.environ.get("WATCHBELL_KEY"),
    capacity=int(os.environ.get("CAPACITY", "4")),
    lease=int(os.environ.get("LEASE_MS", "15000")) / 1000,
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


@worker.handler("echo")
@told
def echo(context: Context, payload: object) -> None:
    pass


@worker.handler("sleep")
@told
def sleep(context: Context, payload: dict) -> None:
    if context.cancelled.wait(payload["seconds"]):
        say("cancelled", context.run_id)


@worker.handler("fail")
@told
def fail(context: Context, payload: dict) -> None:
    raise (GiveUp if (payload or {}).get("final") else Failed)("no")


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
