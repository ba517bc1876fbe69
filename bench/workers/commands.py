"""commands.py [RUNS]: how many times a second one worker runs `/bin/true`, beside `xargs -P`, in one run of this program.

Needs WATCHBELL_BINARY. The queue is full and paused before it begins, so neither submitting nor starting the worker is in it. Then what
a worker and the guards of its programs have in memory while a thousand programs run.
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python/tests"))

from server import TestServer, binary, eventually, lines_of
from watchbell import Client, RunSpec

PARALLEL = 8
UNDER_WAY = 1_000
TICKS = os.sysconf("SC_CLK_TCK")


class CommandWorker:
    """`watchbell worker` for one queue of a server."""

    def __init__(self, server, queue, capacity, isolation):
        command = [
            *(binary(), "worker", "--server", server.url, "--queue", queue, "--name", queue, "--capacity", str(capacity)),
            *("--isolate", isolation, "--allow", "/bin", "--allow", "/usr/bin", "--spool", os.path.join(server.data, "spool")),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = lines_of(self._process)
        self.id = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Once: finish. Twice: end everything.
        for _ in range(2):
            self._process.terminate()
            time.sleep(0.1)
        self._process.wait()

    def processor_s(self):
        """Its own time and that of all processes that it has waited for."""
        with open(f"/proc/{self.id}/stat") as stat:
            times = stat.read().rpartition(")")[2].split()[11:15]
        return sum(map(int, times)) / TICKS


def submit(client, queue, count, *argv):
    for begin in range(0, count, 1_000):
        runs = [RunSpec(command={"argv": argv})] * min(1_000, count - begin)
        client.submit_many(queue, runs)


def commands(server, isolation, count):
    """Runs per second, and processor time of each in milliseconds."""
    client, queue = Client(server.url), f"true-{isolation}"
    submit(client, queue, count, "/bin/true")
    client.pause_queue(queue)
    with CommandWorker(server, queue, PARALLEL, isolation) as worker:
        is_there = lambda: any(there.name == queue for there in client.workers())
        eventually(is_there, f"a worker claims: {worker.said}")
        cost, begun = worker.processor_s(), time.perf_counter()
        client.resume_queue(queue)
        while client.queue(queue).state.waiting + client.queue(queue).state.running:
            time.sleep(0.02)
        took, cost = time.perf_counter() - begun, worker.processor_s() - cost
    failed = sum(1 for run in client.runs(queue=queue, state=["failed", "dead"]))
    if failed:
        raise AssertionError(f"{failed} runs failed, so this says nothing")
    return count / took, cost * 1_000 / count


def xargs(count):
    before, begun = os.times(), time.perf_counter()
    lines = "x\n" * count
    subprocess.run(["xargs", "-P", str(PARALLEL), "-I{}", "/bin/true"], input=lines, text=True, check=True)
    took, after = time.perf_counter() - begun, os.times()
    cost = after.children_user + after.children_system - before.children_user - before.children_system
    return count / took, cost * 1_000 / count


def descendants(of):
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                parents[int(entry)] = int(stat.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = set(), {of}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found - {of}


def is_sleep(process):
    try:
        with open(f"/proc/{process}/comm") as name:
            return name.read() == "sleep\n"
    except OSError:
        return False


def memory_kib(process, line):
    try:
        with open(f"/proc/{process}/smaps_rollup") as rollup:
            return next((int(row.split()[1]) for row in rollup if row.startswith(line)), 0)
    except OSError:
        return 0


def under_way(server):
    """KiB of the worker, and of each guard of a program, while so many programs sleep."""
    client, queue = Client(server.url), "sleep"
    submit(client, queue, UNDER_WAY, "/bin/sleep", "600")
    with CommandWorker(server, queue, UNDER_WAY, "auto") as worker:
        eventually(lambda: client.queue(queue).state.running == UNDER_WAY, "all have begun", 60)
        eventually(lambda: sum(map(is_sleep, descendants(worker.id))) >= UNDER_WAY, "all sleep", 60)
        guards = [process for process in descendants(worker.id) if not is_sleep(process)]
        told = memory_kib(worker.id, "Rss:"), sum(memory_kib(guard, "Pss:") for guard in guards), len(guards)
    return told


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    with TestServer() as server:
        rows = [("xargs", xargs(count))]
        rows += [(f"worker, {isolation}", commands(server, isolation, count)) for isolation in ("namespace", "cgroup", "group")]
        rows += [("xargs, again", xargs(count))]
        worker, guards, number = under_way(server)
    base = (rows[0][1][0] + rows[-1][1][0]) / 2
    print(f"/bin/true, {PARALLEL} at a time, {count:,} of them; processor time without that of the server")
    for name, (rate, cost) in rows:
        print(f"{name:<20} {rate:>8,.0f} runs/s  {rate / base:>5.2f} of xargs  {cost:>6.2f} ms of processor time each")
    print(f"{UNDER_WAY:,} programs under way: {worker / 1024:.1f} MB for the worker, {guards / 1024:.1f} MB for {number:,} guards")


if __name__ == "__main__":
    main()
