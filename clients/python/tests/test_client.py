"""The client, against a real server, and through a line that loses answers."""

import logging
import os
import socket
import tempfile
import threading
import traceback
import types
import unittest
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from unittest import mock

from server import TestServer, closed_port

from watchbell import Client, Conflict, LimitReached, NotFound, Refused, Retry, RunSpec, Unreachable
from watchbell.clock import instant_text, length_text, read_instant
from watchbell.transport import Transport, encode


def setUpModule():
    global server
    server = TestServer()
    unittest.addModuleCleanup(server.close)
    logging.getLogger("watchbell").addHandler(logging.NullHandler())
    logging.getLogger("watchbell").propagate = False


class LosingLine:
    """Passes requests on to a server, and loses the first answer."""

    def __init__(self, url):
        self._to = url.rpartition("/")[2].split(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lost = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                taken = self._listener.accept()[0]
            except OSError:
                return
            with taken, socket.create_connection((self._to[0], int(self._to[1]))) as passed:
                while True:
                    asked = taken.recv(65_536)
                    if not asked:
                        break
                    passed.sendall(asked)
                    if b"\r\n\r\n{" not in asked and not asked.startswith(b"{"):
                        continue  # The body comes in a piece of its own.
                    told = passed.recv(65_536)
                    if self.lost == 0:
                        self.lost += 1
                        break
                    taken.sendall(told)

    def close(self):
        self._listener.close()


@dataclass
class Address:
    mail: str


@dataclass
class Letter:
    to: Address
    copies: int = 1


@contextmanager
def slept(on_sleep=lambda count: None):
    """Pauses take no time but their own: a list of them. `on_sleep` gets how many there were."""
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        on_sleep(len(pauses))

    with mock.patch("watchbell.client.time", types.SimpleNamespace(sleep=sleep)):
        with mock.patch("watchbell.clock.now", lambda: sum(pauses)):
            yield pauses


class Asking(unittest.TestCase):
    def setUp(self):
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    def test_a_run_says_all_that_it_may(self):
        run = self.client.submit(
            "fields",
            "echo",
            {"n": 1},
            priority=2,
            delay=timedelta(hours=1),
            expires_after="1h",
            timeout=30,
            retry=Retry(attempts=5, delay=10, backoff="constant", max_delay="1m"),
            delivery="at_most_once",
            key="k",
            unique_key="u",
            unique_window="1d",
            labels={"env": "test"},
        )
        found = self.client.run(run.id)
        self.assertEqual((found.state, found.queued.priority, found.queued.key), ("waiting", 2, "k"))
        self.assertEqual(found.queued.labels, {"env": "test"})
        self.assertFalse(found.is_ended)
        again = self.client.submit("fields", "echo", unique_key="u")
        self.assertEqual((again.id, again.created), (run.id, False))

    def test_a_run_may_be_a_command_and_wait_for_an_instant(self):
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        run = self.client.submit("instant", command={"argv": ["/bin/true"]}, not_before=later)
        found = self.client.run(run.id).not_before
        self.assertLess(abs(found - later), timedelta(seconds=1))

    def test_the_same_request_under_the_same_key_is_one_run(self):
        ids = {self.client.submit("once", "echo", idempotency_key="mine").id for _ in range(2)}
        self.assertEqual(len(ids), 1)

    def test_a_lost_answer_makes_no_second_run(self):
        line = LosingLine(server.url)
        self.addCleanup(line.close)
        client = Client(line.url)
        self.addCleanup(client.close)
        run = client.submit("lossy", "echo")
        self.assertEqual(line.lost, 1)
        self.assertEqual([found.id for found in self.client.runs("lossy")], [run.id])

    def test_many_runs_are_taken_together_and_listed_page_after_page(self):
        runs = self.client.submit_many("pages", [RunSpec("echo", n, labels={"odd": str(n % 2)}) for n in range(25)])
        ids = [run.id for run in runs]
        self.assertEqual([run.id for run in self.client.runs("pages", limit=10)], ids)
        odd = self.client.runs("pages", state=["waiting"], labels={"odd": "1"}, limit=4)
        self.assertEqual([run.id for run in odd], ids[1::2])
        self.assertEqual(list(self.client.runs("pages", state="dead")), [])

    def test_a_run_that_ends_between_two_lists_comes_once(self):
        first, second = self.client.submit_many("turns", [RunSpec("echo"), RunSpec("echo")])
        found = []
        for run in self.client.runs("turns", limit=1):
            if not found:
                self.client.cancel(first.id)
            found.append(run.id)
        self.assertEqual(found, [first.id, second.id])

    def test_many_runs_are_specs_and_nothing_else(self):
        for bad in (("echo", "secret"), {"handler": "echo", "payload": "secret"}, "secret"):
            with self.assertRaisesRegex(TypeError, r'RunSpec\("welcome", payload\); run 1 is a \w+$') as caught:
                self.client.submit_many("specs", [RunSpec("echo"), bad])
            self.assertNotIn("secret", str(caught.exception))

    def test_a_cancelled_run_has_ended_and_cannot_be_cancelled_again(self):
        run = self.client.submit("cancelled", "echo")
        self.client.cancel(run.id)
        self.assertEqual(self.client.wait(run.id, 10).state, "cancelled")
        self.assertEqual([found.id for found in self.client.runs("cancelled", state="cancelled")], [run.id])
        with self.assertRaises(NotFound):
            self.client.cancel(run.id)

    def test_a_wait_ends_in_time(self):
        run = self.client.submit("patient", "echo")
        with self.assertRaises(TimeoutError):
            self.client.wait(run.id, 0.05)

    def test_a_server_that_is_away_is_asked_until_it_is_back(self):
        with TestServer() as mortal, Client(mortal.url) as client:
            mortal.kill()
            with slept(lambda count: count == 12 and mortal.start()) as pauses:
                with self.assertLogs("watchbell", "WARNING") as logged:
                    self.assertTrue(client.submit("away", "echo").created)
            self.assertEqual(len(pauses), 12)
            self.assertLessEqual(max(pauses), 2)
            self.assertEqual(len(logged.output), 1, logged.output)

    def test_a_server_that_stays_away_is_asked_for_half_a_minute_or_as_the_client_says(self):
        url = f"http://127.0.0.1:{closed_port(self)}"
        for settings, least, most in (({}, 28, 30), ({"patience": 5}, 3, 5), ({"retries": 2}, 0.1, 0.3)):
            with slept() as pauses, Client(url, **settings) as client, self.assertRaises(Unreachable):
                client.queue("mail")
            self.assertTrue(least <= sum(pauses) <= most, pauses)

    def test_a_wait_goes_on_while_the_server_is_started_again(self):
        with TestServer() as mortal, Client(mortal.url, patience=1) as client, Client(mortal.url) as other:
            run_id = client.submit("restart", "echo").id
            mortal.kill()

            def look(count):
                if count == 20:
                    mortal.start()
                    other.cancel(run_id)

            with slept(look):
                self.assertEqual(client.wait(run_id, 120).state, "cancelled")

    def test_a_wait_ends_in_time_also_if_no_server_answers(self):
        client = Client(f"http://127.0.0.1:{closed_port(self)}")
        with slept() as pauses, self.assertRaisesRegex(TimeoutError, "no server answers"):
            client.wait("run_1", 5)
        self.assertTrue(3 < sum(pauses) <= 5, pauses)

    def test_a_dataclass_is_an_object_also_within_others(self):
        self.assertTrue(self.client.submit("letters", "echo", Letter(Address("ann@example.com"))).created)
        for bad in (Letter, object(), {"to": {1, 2}}):
            with self.assertRaisesRegex(TypeError, "cannot be said in JSON"):
                self.client.submit("letters", "echo", bad)
        letters = encode({"payload": [Letter(Address("bob@example.com"), 2)]})
        self.assertEqual(letters, b'{"payload":[{"to":{"mail":"bob@example.com"},"copies":2}]}')

    def test_each_bad_field_is_named(self):
        with self.assertRaises(Refused) as caught:
            self.client.submit("bad", "echo", priority=10, timeout="1parsec")
        self.assertEqual(caught.exception.status, 422)
        where = {field.where for field in caught.exception.errors}
        self.assertTrue(where & {"/priority", "/timeout"}, where)
        with self.assertRaises(ValueError):
            self.client.submit("bad", "echo", float("nan"))

    def test_what_is_not_there_is_not_found(self):
        for ask in (self.client.queue, self.client.worker, self.client.drain):
            with self.assertRaises(NotFound):
                ask("nobody")

    def test_a_queue_is_set_paused_and_resumed(self):
        queue = self.client.set_queue("limits", concurrency=2, rate=(100, "1m"), alert_after=300)
        self.assertEqual(queue.spec["rate"], {"runs": 100, "per": "1m"})
        with self.assertRaises(Conflict):
            self.client.set_queue("limits", concurrency=3, revision=queue.revision + 5)
        self.assertEqual(self.client.set_queue("limits", waiting_max=1, revision=queue.revision).spec, {"waiting_max": 1})
        self.client.submit("limits", "echo")
        with self.assertRaises(LimitReached) as caught:
            Client(server.url, retries=0).submit("limits", "echo")
        self.assertEqual(caught.exception.status, 429)
        self.client.pause_queue("limits", note="the relay moves")
        self.assertEqual(self.client.queue("limits").paused["note"], "the relay moves")
        with self.assertRaises(Conflict):
            self.client.pause_queue("limits")
        self.assertIsNone(self.client.resume_queue("limits").paused)
        self.assertIn("limits", [queue.name for queue in self.client.queues("lim")])

    def test_a_queue_without_runs_is_deleted(self):
        self.client.set_queue("gone")
        self.client.delete_queue("gone")
        with self.assertRaises(NotFound):
            self.client.delete_queue("gone")

    def test_of_several_servers_one_that_answers_is_asked(self):
        dead = f"http://127.0.0.1:{closed_port(self)}"
        client = Client([dead, server.url], retries=0)
        self.addCleanup(client.close)
        self.assertTrue(client.submit("several", "echo").created)

    def test_nobody_there_is_said_so(self):
        with self.assertRaises(Unreachable) as caught:
            Client(f"http://127.0.0.1:{closed_port(self)}", retries=1).workers()
        self.assertFalse(caught.exception.may_be_done)
        with self.assertRaises(ValueError):
            Client("127.0.0.1:7400")

    def test_a_key_is_not_shown(self):
        self.assertNotIn("wbk_secret", repr(Client(server.url, key="wbk_secret")))
        for bad in ("wbk_secret\nx", "wbk_secret\x7f", "wbk_secret\u2026"):
            with self.assertRaises(ValueError) as caught:
                Client(server.url, key=bad)
            self.assertNotIn("wbk_secret", "".join(traceback.format_exception(None, caught.exception, None)))

    def test_a_key_may_be_what_a_file_has_with_its_line_end(self):
        transport = Transport(server.url, "wbk_secret\r\n", None, None)
        self.addCleanup(transport.close)
        self.assertEqual(transport._headers["authorization"], "Bearer wbk_secret")

    def test_a_key_may_be_in_a_file_that_the_environment_names(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("wbk_of_file\n")
            file.flush()
            with mock.patch.dict(os.environ, {"WATCHBELL_KEY_FILE": file.name}):
                os.environ.pop("WATCHBELL_KEY", None)
                self.assertEqual(Transport(server.url, None, None, None)._headers["authorization"], "Bearer wbk_of_file")
                self.assertEqual(Transport(server.url, "wbk_1", None, None)._headers["authorization"], "Bearer wbk_1")
                os.environ["WATCHBELL_KEY"] = "wbk_2"
                with self.assertRaisesRegex(ValueError, "both set"):
                    Client(server.url)

    def test_a_url_with_a_password_is_refused_and_not_shown(self):
        for bad in ("http://ann:hush@localhost:7400", "ann:hush@localhost:7400", "ftp://ann:hush@localhost"):
            with self.assertRaises(ValueError) as caught:
                Client(bad)
            self.assertNotIn("hush", str(caught.exception))


class Time(unittest.TestCase):
    def test_lengths_are_whole_seconds_and_never_shorter_than_asked_for(self):
        self.assertEqual([length_text(1), length_text(1.2), length_text(timedelta(minutes=2))], ["1s", "2s", "120s"])
        for bad in (-1, float("inf"), float("nan")):
            with self.assertRaises(ValueError):
                length_text(bad)

    def test_instants_come_back_as_they_were(self):
        instant = datetime(2027, 1, 15, 9, 0, 0, 250_000, tzinfo=timezone.utc)
        self.assertEqual(read_instant(instant_text(instant)), instant)
        self.assertEqual(read_instant("2027-01-15T09:00:00.250000999Z"), instant)
        self.assertEqual(read_instant("2027-01-15T10:00:00.25+01:00"), instant)
        with self.assertRaises(ValueError):
            instant_text(datetime(2027, 1, 15))


if __name__ == "__main__":
    unittest.main()
