"""A life of a worker, without a server: what it is told, and what it does then."""

import queue
import unittest

import server  # noqa: F401  It finds the library.

from watchbell.execution import Execution, Handler
from watchbell.ledger import GivenRun, News
from watchbell.life import Life, Plan
from watchbell.transport import Transport

LEASE = 15.0
RUN = GivenRun("a", 1, 1, "q", "2027-01-15T09:00:00Z", "echo", None, None, None, None)


class Enough(Exception):
    """Ends the thread that keeps the time: what it was told before is done by then."""


class LifeCase(unittest.TestCase):
    def setUp(self):
        transport = Transport("http://127.0.0.1:7400", None, None, None)
        handlers = {"echo": Handler(lambda context, payload: None, None, None, False)}
        self.control = queue.SimpleQueue()
        self.life = Life(Plan("w", ["q"], 8, LEASE, 2.0, None, {}, handlers, transport), 7, self.control, None)


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


if __name__ == "__main__":
    unittest.main()
