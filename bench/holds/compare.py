#!/usr/bin/env python3
"""`watchbell hold` beside `etcdctl lock` and `consul lock`: the same program, the same lease, the same faults.

    bench/holds/compare.py WATCHBELL [ROUNDS] [CONSUL]

With one etcd, and one server of Consul if its binary is given (bench/holds/consul builds it). `consul lock` has a lease of 15 s
and no flag for another one: with it, that of all is 15 s, else 5 s, and the faults last as many times longer. Two on this machine want to run the program, each as if on a machine of its own. Whoever has it is hurt in one way, and for a
while it is watched who runs the program: it writes down every 20 ms that it does, by the clock that all share. Then two
figures are told for each fault: for how long two ran it, and what was left of it when the one that was hurt and its successor
were told to end. Everything is started in a temporary directory and ended by its id.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

CONSUL = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
TTL = 15 if CONSUL else 5
PROGRAM = r"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.signal(signal.SIGINT, lambda *_: os._exit(0))
me = open(os.path.join(sys.argv[1], "%d-%s" % (time.clock_gettime(time.CLOCK_BOOTTIME) * 1000, os.urandom(4).hex())), "w")
while True:
    me.write("%.3f\n" % time.clock_gettime(time.CLOCK_BOOTTIME))
    me.flush()
    time.sleep(0.02)
"""


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Etcd:
    def __init__(self, place):
        client, peer = free_port(), free_port()
        self.url = f"127.0.0.1:{client}"
        words = ["etcd", "--data-dir", str(place / "etcd"), "--listen-client-urls", f"http://{self.url}",
                 "--advertise-client-urls", f"http://{self.url}", "--listen-peer-urls", f"http://127.0.0.1:{peer}",
                 "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                 "--initial-cluster", f"default=http://127.0.0.1:{peer}"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = now() + 20
        while subprocess.run(["etcdctl", "--endpoints", self.url, "get", "x"], env=api(), capture_output=True).returncode:
            if now() > deadline:
                raise SystemExit("etcd does not answer")
            time.sleep(0.1)


class Consul:
    def __init__(self, place):
        ports = [free_port() for _ in range(4)]
        self.url = f"127.0.0.1:{ports[0]}"
        words = [CONSUL, "agent", "-server", "-bootstrap-expect=1", "-node=one", "-bind=127.0.0.1", "-client=127.0.0.1",
                 "-data-dir", str(place / "consul"), f"-http-port={ports[0]}", f"-server-port={ports[1]}",
                 f"-serf-lan-port={ports[2]}", f"-serf-wan-port={ports[3]}", "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = now() + 60
        while subprocess.run([CONSUL, "kv", "put", f"-http-addr={self.url}", "x", "1"], capture_output=True).returncode:
            if now() > deadline:
                raise SystemExit("consul does not answer")
            time.sleep(0.2)


def api():
    return {**os.environ, "ETCDCTL_API": "3"}


class Round:
    """Two contenders, and what the program wrote down."""

    def __init__(self, place, command):
        self.ticks = place / "ticks"
        self.ticks.mkdir(parents=True)
        self.contenders = []
        program = [sys.executable, "-S", "-c", PROGRAM, str(self.ticks)]
        for name in ("a", "b"):
            words = command(place, name) + program
            quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.contenders.append(subprocess.Popen(words, env=api(), start_new_session=True, **quiet))
            self.wait_for_one()

    def wait_for_one(self):
        deadline = now() + 20
        while not any(self.stretches()):
            if now() > deadline:
                raise SystemExit("nobody runs the program")
            time.sleep(0.05)

    def stretches(self):
        """From when to when each start of the program ran, as lists of instants."""
        found = [[float(line) for line in file.read_text().split()] for file in sorted(self.ticks.iterdir())]
        return [ticks for ticks in found if ticks]

    def overlap(self):
        """For how long two ran: while one's ticks went on after the first of the next."""
        total, stretches = 0.0, sorted(self.stretches())
        for earlier, later in zip(stretches, stretches[1:]):
            beside = [at for at in earlier if later[0] <= at <= later[-1]]
            if beside:
                total += beside[-1] - later[0]
        return total

    def alive(self):
        """Processes of the program."""
        pids = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    state = re.search(r"State:\s+(\S)", (entry / "status").read_text()).group(1)
                except OSError:
                    continue
                if str(self.ticks).encode() in words and b"-c" in words[:4] and state != "Z":
                    pids.append(int(entry.name))
        return pids

    def end(self):
        """Tells both to end, and gives how many processes of the program are left 10 s later."""
        for contender in self.contenders:
            if contender.poll() is None:
                contender.send_signal(signal.SIGCONT)
                contender.send_signal(signal.SIGTERM)
        for contender in self.contenders:
            try:
                contender.wait(10)
            except subprocess.TimeoutExpired:
                contender.kill()
                contender.wait()
        deadline = now() + 10
        while self.alive() and now() < deadline:
            time.sleep(0.1)
        left = self.alive()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return len(left)


def stopped(round, store):
    round.contenders[0].send_signal(signal.SIGSTOP)
    time.sleep(4 * TTL)
    round.contenders[0].send_signal(signal.SIGCONT)
    time.sleep(TTL)


def killed(round, store):
    round.contenders[0].kill()
    round.contenders[0].wait()
    time.sleep(4 * TTL)


def store_away(round, store):
    store.process.send_signal(signal.SIGSTOP)
    time.sleep(3 * TTL)
    store.process.send_signal(signal.SIGCONT)
    time.sleep(2 * TTL)


FAULTS = [(f"its supervisor is stopped (SIGSTOP) for {4 * TTL} s", stopped), ("its supervisor is killed (SIGKILL)", killed),
          (f"the store does not answer for {3 * TTL} s", store_away)]


def main():
    watchbell, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        etcd, stores = Etcd(place), {}
        try:
            stores = {"etcdctl lock": etcd, "consul lock": Consul(place) if CONSUL else None, "watchbell hold": etcd}
            print(f"T = {TTL} s; {rounds} rounds of each; seconds in which two ran, and processes left behind", flush=True)
            for fault, hurt in FAULTS:
                for who, store in ((who, store) for who, store in stores.items() if store):
                    figures = []
                    for number in range(rounds):
                        here = place / f"{who[0]}-{hurt.__name__}-{number}"
                        here.mkdir()
                        job = f"{hurt.__name__}-{number}"

                        def command(place, name):
                            if who == "etcdctl lock":
                                return ["etcdctl", "--endpoints", etcd.url, "lock", "--ttl", str(TTL), job, "--"]
                            if who == "consul lock":
                                return [CONSUL, "lock", f"-http-addr={store.url}", "-shell=false", job]
                            return [watchbell, "hold", job, "--store", f"etcd://{etcd.url}/holds", "--ttl", f"{TTL}s",
                                    "--node", f"{name}-{number}-{hurt.__name__}".replace("_", "-"),
                                    "--lock-dir", str(place / f"machine-{name}"), "--"]

                        round = Round(here, command)
                        time.sleep(2)
                        try:
                            hurt(round, store)
                        finally:
                            store.process.send_signal(signal.SIGCONT)
                            two = round.overlap()
                            starts = len(round.stretches())
                            left = round.end()
                        figures.append(f"{two:.1f} s, {left} left, {starts} starts")
                    print(f"{fault:45} {who:15} " + "; ".join(figures), flush=True)
        finally:
            for store in {id(store): store for store in (etcd, *stores.values()) if store}.values():
                store.process.kill()
                store.process.wait()


main()
