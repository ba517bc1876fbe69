"""A real server for tests: the binary that WATCHBELL_BINARY names, on a free port, in a temporary directory."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src")
sys.path.insert(0, SOURCE)

PATIENCE = 20.0


def binary():
    path = os.environ.get("WATCHBELL_BINARY", "")
    if not os.path.isfile(path):
        raise AssertionError(
            f"WATCHBELL_BINARY is {path!r}, and no file: build the server (cargo build --release), and set it to the path of "
            "target/release/watchbell"
        )
    return path


def eventually(claim, what, patience=PATIENCE):
    """Waits until `claim` gives something, and gives that."""
    until = time.monotonic() + patience
    while True:
        found = claim()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {patience:g} s: {what}")
        time.sleep(0.01)


def lines_of(process):
    """A list that gets the lines of a process as it prints them."""
    lines = []

    def read():
        with process.stdout:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))

    threading.Thread(target=read, daemon=True).start()
    return lines


class TestServer:
    """A server that can be killed and started again at the same place."""

    __test__ = False

    def __init__(self):
        self._dir = tempfile.TemporaryDirectory(prefix="watchbell-python-")
        self.data = os.path.join(self._dir.name, "data")
        self._listen = "127.0.0.1:0"
        self._process = None
        self.url = ""
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        command = [binary(), "dev", "--listen", self._listen, "--data", self.data]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            found = re.search(r"http://(127\.0\.0\.1:\d+)", line)
            if found:
                break
        else:
            raise AssertionError(f"the server did not start: {''.join(lines)}")
        self._listen = found.group(1)
        self.url = f"http://{self._listen}"
        # What it prints is read, so that it never waits for us.
        lines_of(self._process)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def close(self):
        self.kill()
        self._dir.cleanup()


def closed_port(test):
    """A port at which nobody listens, and that nobody else gets while the test runs."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    test.addCleanup(bound.close)
    return bound.getsockname()[1]
