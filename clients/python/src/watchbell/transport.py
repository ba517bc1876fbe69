"""Requests and answers: several servers, and connections to them that are used again."""

from __future__ import annotations

import dataclasses
import http.client
import json
import math
import os
import socket
import ssl
import threading
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import urlsplit

from . import clock
from .error import BadAnswer, Unreachable, problem_of

Servers = Union[None, str, Sequence[str]]

DEFAULT_SERVER = "http://127.0.0.1:7400"

# Servers close a connection that rests for 10 s. It is given up before, so that no request crosses the close.
_REST_SECONDS_MAX = 5.0
_RESTING_MAX = 16
_ANSWER_BYTES_MAX = 64 * 1024 * 1024


class Call:
    """A request that another thread may give up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None
        self.is_aborted = False

    def abort(self) -> None:
        """Whoever waits for the answer gets `Unreachable`, at once."""
        with self._lock:
            self.is_aborted = True
            _shut(self._socket)

    def attach(self, connected: Optional[socket.socket]) -> None:
        with self._lock:
            self._socket = connected
            if self.is_aborted:
                _shut(connected)


def _shut(connected: Optional[socket.socket]) -> None:
    if connected is not None:
        try:
            # Not by the method of a TLS socket, which is not made for two threads.
            socket.socket.shutdown(connected, socket.SHUT_RDWR)
        except OSError:
            pass


class Server:
    """One server, and connections to it that rest."""

    def __init__(self, url: str, ca: Optional[str]) -> None:
        if "@" in url:
            # It is not shown: there may be a password in it.
            raise ValueError("a server URL has no user or password in it; give a key")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no server URL; try {DEFAULT_SERVER}")
        self.url = url.rstrip("/")
        self.base = parts.path.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port
        self._tls = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        self._lock = threading.Lock()
        self._resting: List[Tuple[float, http.client.HTTPConnection]] = []

    def take(self, connect_timeout: float) -> Tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it was used before."""
        youngest = clock.now() - _REST_SECONDS_MAX
        with self._lock:
            while self._resting:
                since, connection = self._resting.pop()
                if since > youngest:
                    return connection, True
                connection.close()
        if self._tls is not None:
            return (
                http.client.HTTPSConnection(
                    self._host, self._port, timeout=connect_timeout, context=self._tls
                ),
                False,
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=connect_timeout), False

    def rest(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._resting) < _RESTING_MAX:
                self._resting.append((clock.now(), connection))
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            resting, self._resting = self._resting, []
        for _, connection in resting:
            connection.close()


class Transport:
    """All servers, and what every request says. Threads may share it."""

    def __init__(
        self, servers: Servers, key: Optional[str], project: Optional[str], ca: Optional[str]
    ) -> None:
        if servers is None:
            servers = os.environ.get("WATCHBELL_SERVER") or DEFAULT_SERVER
        urls = servers.split(",") if isinstance(servers, str) else servers
        self.servers = [Server(url.strip(), ca) for url in urls if url.strip()]
        if not self.servers:
            raise ValueError(f"a server is needed; try {DEFAULT_SERVER}")
        self._headers = {"content-type": "application/json", "user-agent": "watchbell-python"}
        # Files end with a line end.
        key = (_key_of_environment() if key is None else key).strip()
        if key:
            self._headers["authorization"] = f"Bearer {_visible('key', key)}"
        if project is not None:
            self._headers["watchbell-project"] = _visible("project", project)

    def exchange(
        self,
        place: int,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: Optional[Mapping[str, str]] = None,
        *,
        timeout: float,
        connect_timeout: Optional[float] = None,
        call: Optional[Call] = None,
    ) -> Any:
        """Sends a request once, and gives the JSON of its answer, or None if it has none."""
        server = self.servers[place % len(self.servers)]
        connection, is_used = server.take(connect_timeout or timeout)
        is_sent = False
        try:
            if not is_used:
                connection.connect()
            connection.sock.settimeout(timeout)
            if call is not None:
                call.attach(connection.sock)
            is_sent = True
            all_headers = {**self._headers, **headers} if headers else self._headers
            connection.request(method, server.base + path, body, all_headers)
            response = connection.getresponse()
            if (response.length or 0) > _ANSWER_BYTES_MAX:
                raise ValueError(f"an answer of {response.length} bytes is too long")
            # Not with a size: Python 3.9 would allocate as much for each answer.
            data = response.read()
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as why:
            # A socket that another thread has shut down may be gone in the midst of anything.
            connection.close()
            reason = str(why) or type(why).__name__
            lost = Unreachable(f"no server answers at {server.url}: {reason}", may_be_done=is_sent)
            closed = (http.client.RemoteDisconnected, ConnectionError)
            lost.was_resting = is_used and isinstance(why, closed)
            raise lost from why
        finally:
            if call is not None:
                call.attach(None)
        if response.will_close:
            connection.close()
        else:
            server.rest(connection)
        return _read(server.url, response.status, response.headers, data)

    def close(self) -> None:
        for server in self.servers:
            server.close()


def _key_of_environment() -> str:
    """As for the command line."""
    key, file = os.environ.get("WATCHBELL_KEY", ""), os.environ.get("WATCHBELL_KEY_FILE", "")
    if key and file:
        raise ValueError("WATCHBELL_KEY and WATCHBELL_KEY_FILE are both set: which of them is meant?")
    if not file:
        return key
    with open(file, encoding="utf-8") as opened:
        return opened.read()


def _visible(what: str, text: str) -> str:
    """A text that can be a header. It is refused here, as `http.client` would show it, and it may be secret."""
    if not all("!" <= character <= "~" for character in text):
        raise ValueError(f"the {what} cannot be used: it holds something else than letters, digits and signs")
    return text


def _read(url: str, status: int, headers: http.client.HTTPMessage, data: bytes) -> Any:
    if 200 <= status < 300:
        if not data:
            return None
        try:
            return json.loads(data)
        except ValueError as why:
            raise BadAnswer(f"{url} gave an answer that is not understood: is it a Watchbell server?") from why
    try:
        told = json.loads(data)
    except ValueError:
        told = {}
    try:
        seconds = float(headers["retry-after"])
    except (KeyError, TypeError, ValueError):
        seconds = math.nan
    # For ever, less than nothing and no number are no time to wait.
    retry_after = seconds if 0 <= seconds < math.inf else None
    raise problem_of(status, told if isinstance(told, dict) else {}, retry_after)


def encode(value: Dict[str, Any]) -> bytes:
    """JSON as servers read it, dataclasses as objects. What is none, such as NaN, is a ValueError."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_object).encode()


def _object(value: Any) -> Dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__} cannot be said in JSON")
