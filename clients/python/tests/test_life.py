"""A life of a worker, without a server: what it is told, and what it does then."""

import json
import queue
import threading
import unittest
from dataclasses import replace
from unittest import mock

import server  # noqa: F401  It finds the library.
from test_ledger import answer, given

from watchbell import clock
from watchbell.execution import Execution, Handler
from watchbell.ledger import GivenRun, News
from watchbell.life import Life, log
from watchbell.plan import Plan
from watchbell.transport import Call

RUN = GivenRun("a", 1, 1, "q", "2027-01-15T09:00:00Z", "echo", None, None, None, None)


class Servers:
    """Answers in the place of servers, as a test says."""

    servers = ["http://a"]

    def __init__(self, told):
        self._told = told

    def exchange(self, place, method, path, body, **_):
        said = json.loads(body)
        return answer(**{"as_of": said["number"], **self._told(path, said)})

    def close(self):
        pass


class Enough(Exception):
    """Ends the thread that keeps the time: what it was told before is done by then."""


class LifeCase(unittest.TestCase):
    # A beat is due after so long that no test waits for it.
    LEASE = 86_400.0

    def setUp(self):
        handlers = {"echo": Handler(lambda context, payload: None, None, None, False)}
        self.control = queue.SimpleQueue()
        plan = Plan("w", ["q"], 1, self.LEASE, 2.0, None, {}, handlers, Servers(self.told))
        self.life = Life(plan, 7, self.control, None)

    def told(self, path, said):
        """What a request is told."""
        raise AssertionError(f"nobody is to be asked: {path}")


class Draining(LifeCase):
    def setUp(self):
        super().setUp()
        self.execution = Execution(RUN, self.life._handlers["echo"], lambda execution: None)
        self.life._live["a"] = self.execution

    def reason(self):
        """Why the handler is to end, after what was told so far."""
        self.control.put(Enough())
        with self.assertRaises(Enough):
            self.life._keep_time()
        return self.execution.context.cancelled._peek()

    def test_a_drain_that_servers_ask_for_is_no_signal_however_often_they_do(self):
        for _ in range(2):
            self.life._take(News(drain=True))
        self.assertIsNone(self.reason())
        self.assertTrue(self.life._ledger.is_draining)
        self.control.put("drain")
        self.assertIsNone(self.reason())
        self.control.put("drain")
        self.assertEqual(self.reason(), "stopping")


class DrainingInTime(LifeCase):
    def setUp(self):
        super().setUp()
        self.life._plan = replace(self.life._plan, drain_timeout=30.0)

    def stops_handlers_at(self):
        """When handlers are told to end, after what was told so far."""
        self.control.put(Enough())
        with mock.patch.object(clock, "now", lambda: 100.0), self.assertRaises(Enough):
            self.life._keep_time()
        return [timer[0] for timer in self.life._timers if timer[2] == self.life._stop_handlers]

    def test_a_drain_that_servers_ask_for_has_no_limit(self):
        self.life._take(News(drain=True))
        self.assertEqual(self.stops_handlers_at(), [])
        self.assertTrue(self.life._ledger.is_draining)

    def test_a_signal_limits_also_a_drain_that_servers_asked_for(self):
        self.life._take(News(drain=True))
        self.control.put("drain")
        self.assertEqual(self.stops_handlers_at(), [130.0])


class Ending(LifeCase):
    def test_a_filter_of_logs_that_raises_loses_no_run(self):
        ledger = self.life._ledger
        claim = ledger.claim(100.0, 1, 5_000)
        ledger.answered(claim, answer(runs=[given("a")]), 100.0)
        execution = Execution(RUN, self.life._handlers["echo"], lambda execution: None)
        self.life._live["a"] = execution
        execution.begin(100.0)
        with mock.patch.object(log, "info", side_effect=OSError), self.assertRaises(OSError):
            self.life._ended(execution, ValueError("no such street"))
        self.assertEqual((ledger.unreported, self.life._live), (["a"], {}))


class Beating(LifeCase):
    def setUp(self):
        super().setUp()
        self.first_claims = [{"runs": [given("a")]}, {}]
        self.was_beaten, self.is_over = threading.Event(), threading.Event()

    def told(self, path, said):
        """A run, no acknowledgement of its result, and then nothing for as long as the test takes."""
        if path.endswith("/beat"):
            self.was_beaten.set()
            return {"acks": [{**run, "counted": True} for run in said["done"]]}
        if not self.first_claims:
            self.is_over.wait(20)
            return {}
        return self.first_claims.pop(0)

    def test_beats_rest_while_a_claim_that_reports_is_open(self):
        ledger = self.life._ledger
        with mock.patch.object(clock, "now", lambda: 100.0):
            first = ledger.claim(100.0, 1, 5_000)
            ledger.answered(first, answer(runs=[given("a")]), 100.0)
            ledger.finish(("a", 1), {"result": "succeeded"})
            self.life._open, self.life._last_sent = (ledger.claim(100.0, 1, 5_000), Call()), 100.0
            self.assertFalse(self.life._has_to_beat())
            self.assertEqual(self.life._beat_pause(), self.LEASE / 5)

    def test_a_result_that_was_not_taken_goes_with_a_beat_while_a_claim_waits(self):
        thread = threading.Thread(target=self.live)
        self.addCleanup(thread.join)
        self.addCleanup(self.is_over.set)
        self.addCleanup(self.control.put, Enough())
        thread.start()
        self.assertTrue(self.was_beaten.wait(20))

    def live(self):
        with self.assertRaises(Enough):
            self.life.live()


if __name__ == "__main__":
    unittest.main()
