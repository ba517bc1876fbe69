"""What a run prints, until a server has it: pieces, their times, and what is sent."""

import unittest
from datetime import datetime, timedelta, timezone
from unittest import mock

import server  # noqa: F401  It finds the library.

from watchbell import clock
from watchbell.context import OUTPUT_KEPT_BYTES, OutputBuffer

BEGIN = datetime(2026, 11, 18, 19, 41, 55, tzinfo=timezone.utc)


class Output(unittest.TestCase):
    def setUp(self):
        self.now = BEGIN
        patch = mock.patch.object(clock, "wall", lambda: self.now)
        patch.start()
        self.addCleanup(patch.stop)
        self.output = OutputBuffer()

    def print(self, text, seconds, stream="stdout"):
        self.now = BEGIN + timedelta(seconds=seconds)
        self.output.print(stream, text.encode())

    def sent(self):
        body, _ = self.output.request(1)
        return [(chunk["offset"], chunk["stream"], chunk["at"][17:23], chunk["text"]) for chunk in body["chunks"]]

    def test_what_is_printed_within_a_second_has_the_time_of_its_first_byte(self):
        self.print("a", 0.12)
        self.print("b", 1.1)
        self.print("c", 1.12)
        self.print("d", 1.2, "stderr")
        self.print("e", 1.0, "stderr")
        expected = [(0, "stdout", "55.120", "ab"), (2, "stdout", "56.120", "c")]
        expected += [(3, "stderr", "56.200", "d"), (4, "stderr", "56.000", "e")]
        self.assertEqual(self.sent(), expected)

    def test_what_a_server_has_is_not_sent_again_and_what_it_asks_for_is(self):
        self.print("hello", 0)
        self.output.taken(3, None)
        self.print("!", 0)
        self.assertEqual(self.sent(), [(3, "stdout", "55.000", "lo"), (5, "stdout", "55.000", "!")])
        self.output.taken(0, None)
        self.assertEqual(self.sent()[0][3], "hello")

    def test_the_last_64_kib_are_kept_and_the_oldest_go(self):
        for second in range(9):
            self.print("x" * (OUTPUT_KEPT_BYTES // 8), second)
        body, _ = self.output.request(1)
        self.assertEqual((body["oldest"], len(body["chunks"])), (OUTPUT_KEPT_BYTES // 8, 8))


if __name__ == "__main__":
    unittest.main()
