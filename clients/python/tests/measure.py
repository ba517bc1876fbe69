"""measure.py [RUNS]: handlers per second, of functions and of coroutines, beside a bare loop of claims, in one run.

Needs WATCHBELL_BINARY, as the tests do. The bare loop claims 100 runs at a time and reports them with its next claim, with
connections and JSON like those of the library, and calls nothing.
"""

import sys
import threading
import time

from server import TestServer
from watchbell import Client, RunSpec, Worker
from watchbell.transport import Transport, encode

CAPACITY = 100


def submit(client, queue, count):
    for _ in range(0, count, 1_000):
        client.submit_many(queue, [RunSpec("echo", {"n": n}) for n in range(1_000)])


def bare_loop(url, queue, count):
    transport = Transport(url, None, None, None)
    life, number, cookie, done, ended = time.time_ns() // 1000, 0, None, [], 0
    begun = time.perf_counter()
    while ended < count:
        number += 1
        said = {"worker": "bare", "incarnation": life, "since": life, "number": number, "settled": number - 1, "cookie": cookie,
                "queues": [queue], "free": CAPACITY, "wait_ms": 1_000, "done": done}
        told = transport.exchange(0, "POST", "/v1/claim", encode(said), timeout=30)
        cookie, ended = told["cookie"], ended + len(told["acks"])
        done = [{"id": run["id"], "token": run["token"], "result": "succeeded"} for run in told["runs"]]
    return count / (time.perf_counter() - begun)


def handlers(url, queue, count, is_async):
    worker = Worker(url, queue, name=queue, capacity=CAPACITY)

    if is_async:

        @worker.handler("echo")
        async def echo_async(context, payload):
            return payload

    else:

        @worker.handler("echo")
        def echo(context, payload):
            return payload

    client = Client(url)
    thread = threading.Thread(target=worker.run)
    begun = time.perf_counter()
    thread.start()
    while client.queue(queue).state.waiting:
        time.sleep(0.02)
    worker.drain()
    thread.join()
    return count / (time.perf_counter() - begun)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with TestServer() as server:
        client = Client(server.url)
        for queue in ("bare", "functions", "coroutines", "bare-again"):
            submit(client, queue, count)
        rows = [
            ("bare loop of claims", bare_loop(server.url, "bare", count)),
            ("functions", handlers(server.url, "functions", count, False)),
            ("coroutines", handlers(server.url, "coroutines", count, True)),
            ("bare loop of claims, again", bare_loop(server.url, "bare-again", count)),
        ]
    for name, rate in rows:
        print(f"{name:<28} {rate:>8,.0f} runs/s")


if __name__ == "__main__":
    main()
