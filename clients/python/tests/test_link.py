"""Whom a worker asks next, and when."""

import unittest
from unittest import mock

import server  # noqa: F401  It finds the library.

from watchbell import Unavailable, clock
from watchbell.link import Contact, Link
from watchbell.transport import _read


class Wishes(unittest.TestCase):
    def not_before(self, retry_after):
        """When a server that says so is asked again, if it was asked at 100."""
        link = Link(1, Contact("w"), pause_max=2.0, wish_max=1.5)
        with mock.patch.object(clock, "now", lambda: 100.0):
            with self.assertRaises(Unavailable) as caught:
                _read("http://a", 503, {"retry-after": retry_after}, b"")
            link.failed(caught.exception)
        return link.not_before

    def test_a_server_that_says_when_is_asked_no_sooner_and_not_much_later_than_a_worker_has_to_be_heard(self):
        for wish, seconds in (("1", 1.0), ("3600", 1.5), ("1e300", 1.5)):
            self.assertGreaterEqual(self.not_before(wish), 100.05 + seconds)
            self.assertLessEqual(self.not_before(wish), 100.1 + seconds)

    def test_what_is_no_time_is_no_wish(self):
        for wish in ("inf", "nan", "-5", "Wed, 21 Oct 2026 07:28:00 GMT", None):
            self.assertLessEqual(self.not_before(wish), 100.1)
            self.assertGreaterEqual(self.not_before(wish), 100.05)


if __name__ == "__main__":
    unittest.main()
