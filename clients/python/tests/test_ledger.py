"""The rules of the protocol, without a server: what a worker says follows from what it was told."""

import json
import unittest

import server  # noqa: F401  It finds the library.

from watchbell.ledger import Ledger

LEASE = 15.0


def answer(**told):
    empty = {"runs": [], "acks": [], "lost": [], "cancel": [], "unheard": [], "cookie": "1:a", "as_of": 1, "beat_ms": 3_000}
    return {**empty, "lease_ms": 15_000, **told}


def given(run, token=1):
    return {"id": run, "token": token, "attempt": 1, "queue": "q", "scheduled": "2027-01-15T09:00:00Z", "handler": "echo"}


def held(run, token=1):
    return {"id": run, "token": token}


class Rules(unittest.TestCase):
    def setUp(self):
        self.ledger = Ledger("w", ["q"], 7, 15_000)

    def claim(self, now, **told):
        request = self.ledger.claim(now, 10, 5_000)
        told = {"as_of": request.number, **told}
        return self.ledger.answered(request, answer(**told), now)

    def test_the_first_claim_has_no_cookie_and_the_next_one_sends_what_was_told(self):
        first = self.ledger.claim(0, 10, 5_000)
        self.assertNotIn("cookie", first.body)
        self.ledger.answered(first, answer(cookie="3:b"), 0)
        second = self.ledger.claim(0, 10, 5_000)
        self.assertEqual(second.body["cookie"], "3:b")
        self.assertEqual([first.number, second.number], [1, 2])
        self.assertEqual((second.body["incarnation"], second.body["since"]), (7, 7))

    def test_labels_go_with_claims_and_with_nothing_else(self):
        labelled = Ledger("w", ["q"], 7, 15_000, {"zone": "b"})
        self.assertEqual(labelled.claim(0, 10, 5_000).body["labels"], {"zone": "b"})
        self.assertNotIn("labels", labelled.beat(0).body)
        self.assertNotIn("labels", self.ledger.claim(0, 10, 5_000).body)

    def test_it_tells_until_when_a_run_is_confirmed_and_whether_its_lease_is_strict(self):
        news = self.claim(5, runs=[{**given("a"), "strict": True}, given("b")])
        self.assertEqual([run.is_strict for run in news.runs], [True, False])
        self.assertEqual(self.ledger.confirmed_until(("a", 1)), 5 + LEASE)
        self.assertIsNone(self.ledger.confirmed_until(("a", 2)))

    def test_a_beat_beside_an_open_claim_settles_only_claims_before_it(self):
        self.claim(0)
        self.ledger.beat(0)
        claim = self.ledger.claim(0, 10, 5_000)
        self.assertEqual((claim.number, claim.body["settled"]), (3, 2))
        self.assertEqual(self.ledger.beat(1).body["settled"], 2)
        self.ledger.failed(claim)
        self.assertEqual(self.ledger.beat(2).body["settled"], 4)

    def test_an_answer_to_a_claim_that_is_given_up_gives_no_runs(self):
        claim = self.ledger.claim(0, 10, 5_000)
        self.ledger.failed(claim)
        news = self.ledger.answered(claim, answer(runs=[given("a")]), 1)
        self.assertEqual((news.runs, self.ledger.named), ([], 0))

    def test_a_run_is_confirmed_from_the_sending_of_the_request_that_was_heard_last(self):
        claim = self.ledger.claim(0, 10, 5_000)
        self.ledger.answered(claim, answer(runs=[given("a")], as_of=claim.number), 14)
        self.assertTrue(self.ledger.begin(("a", 1), 14.9))
        claim = self.ledger.claim(20, 10, 5_000)
        self.ledger.answered(claim, answer(runs=[given("b")], as_of=claim.number), 36)
        self.assertFalse(self.ledger.begin(("b", 1), 36))
        self.assertEqual(self.ledger.beat(36).body["released"], [held("b")])

    def test_a_beat_confirms_what_it_named_but_for_what_was_not_heard(self):
        self.claim(0, runs=[given("a"), given("b")])
        beat = self.ledger.beat(10)
        self.ledger.answered(beat, answer(as_of=beat.number, unheard=[held("b")]), 10)
        self.assertTrue(self.ledger.begin(("a", 1), 20))
        self.assertFalse(self.ledger.begin(("b", 1), 20))

    def test_a_number_that_is_not_remembered_confirms_nothing(self):
        self.claim(0, runs=[given("a")], as_of=99)
        self.assertFalse(self.ledger.begin(("a", 1), 0))

    def test_a_result_is_repeated_until_it_is_acknowledged(self):
        self.claim(0, runs=[given("a")])
        self.ledger.begin(("a", 1), 0)
        self.assertEqual(self.ledger.beat(0).body["running"], [held("a")])
        self.ledger.finish(("a", 1), {"result": "succeeded"})
        for _ in range(2):
            claim = self.ledger.claim(0, 10, 5_000)
            self.assertEqual(claim.body["done"], [{**held("a"), "result": "succeeded"}])
            self.assertEqual((claim.body["running"], claim.body["wait_ms"]), ([], 0))
            self.ledger.failed(claim)
        news = self.claim(0, acks=[{**held("a"), "counted": True}])
        self.assertEqual((self.ledger.named, news.uncounted), (0, []))

    def test_a_result_that_was_said_once_and_did_not_count_is_news(self):
        self.claim(0, runs=[given("a")])
        self.ledger.finish(("a", 1), {"result": "succeeded"})
        news = self.claim(0, acks=[{**held("a"), "counted": False}])
        self.assertEqual((self.ledger.named, news.uncounted), (0, [("a", 1)]))

    def test_a_result_that_was_said_twice_may_have_counted_the_first_time(self):
        self.claim(0, runs=[given("a")])
        self.ledger.finish(("a", 1), {"result": "succeeded"})
        beat = self.ledger.beat(0)
        news = self.claim(0, acks=[{**held("a"), "counted": False}])
        self.assertEqual((self.ledger.named, news.uncounted), (0, []))
        late = answer(as_of=beat.number, acks=[{**held("a"), "counted": True}])
        self.assertEqual(self.ledger.answered(beat, late, 0).uncounted, [])

    def test_a_request_that_reached_nobody_said_nothing_so_a_late_result_is_told_all_the_same(self):
        self.claim(0, runs=[given("a")])
        self.ledger.finish(("a", 1), {"result": "succeeded"})
        for now in (1, 2, 3):
            claim = self.ledger.claim(now, 10, 5_000)
            self.assertEqual(claim.done, [("a", 1)])
            self.ledger.unheard(claim)
        news = self.claim(60, acks=[{**held("a"), "counted": False}])
        self.assertEqual((self.ledger.named, news.uncounted), (0, [("a", 1)]))

    def test_a_result_that_was_never_said_and_whose_run_is_lost_is_told(self):
        self.claim(0, runs=[given("a"), given("b")])
        for run in ("a", "b"):
            self.ledger.finish((run, 1), {"result": "succeeded"})
            if run == "a":
                self.claim(1)
        news = self.claim(1.05, lost=[held("a")], acks=[{**held("b"), "counted": True}])
        self.assertEqual(news.uncounted, [], "a was said, and may have counted")
        self.claim(2, runs=[given("c")])
        request = self.ledger.beat(2)
        self.ledger.finish(("c", 1), {"result": "succeeded"})
        news = self.ledger.answered(request, answer(as_of=request.number, lost=[held("c")]), 2)
        self.assertEqual((news.uncounted, self.ledger.named), ([("c", 1)], 0))

    def test_a_result_that_its_owner_did_not_take_is_named_and_sent_again_later(self):
        self.claim(0, runs=[given("a")])
        self.ledger.finish(("a", 1), {"result": "succeeded"})
        self.claim(1)
        claim = self.ledger.claim(1.05, 10, 5_000)
        self.assertEqual((claim.body["done"], claim.body["running"]), ([], [held("a")]))
        self.assertTrue(claim.waits)
        self.assertEqual(len(self.ledger.beat(1.2).body["done"]), 1)

    def test_what_is_given_back_and_not_taken_is_named_and_said_again_later(self):
        self.claim(0, runs=[given("a"), given("b")])
        self.ledger.begin(("a", 1), LEASE)
        for now, pause in ((15, 0.1), (15.2, 0.2), (15.5, 0.4)):
            self.assertTrue(self.ledger.has_news(now))
            self.claim(now)
            self.assertAlmostEqual(self.ledger.report_at, now + pause)
        claim = self.ledger.claim(15.6, 10, 5_000)
        self.assertEqual((claim.body["released"], claim.waits), ([held("a")], True))
        self.ledger.failed(claim)
        self.claim(15.7, acks=[{**held("a"), "counted": True}])
        self.ledger.drain()
        self.assertTrue(self.ledger.has_news(15.8))

    def test_requests_about_other_things_do_not_put_off_what_is_said_again(self):
        self.claim(0, runs=[given("a")])
        self.ledger.begin(("a", 1), LEASE)
        self.claim(15)
        self.claim(15.05)
        self.assertAlmostEqual(self.ledger.report_at, 15.1)

    def test_results_that_find_no_place_in_a_request_are_named(self):
        runs = [given(f"run_{number}") for number in range(1_000)]
        self.claim(0, runs=runs)
        for run in runs:
            self.ledger.finish((run["id"], 1), {"result": "failed", "error": "\x01" * 1_000})
        body = self.ledger.claim(0, 10, 5_000).body
        self.assertGreater(len(body["done"]), 5)
        self.assertEqual(len(body["done"]) + len(body["running"]), 1_000)
        self.assertLess(len(json.dumps(body)), 256 * 1024)

    def test_results_that_their_owner_did_not_take_hold_up_no_others(self):
        runs = [given(f"run_{number}") for number in range(100)]
        self.claim(0, runs=runs)
        for run in runs:
            self.ledger.finish((run["id"], 1), {"result": "failed", "error": "x" * 1_000})
        first = self.ledger.claim(0, 10, 5_000)
        self.ledger.answered(first, answer(as_of=first.number), 0)
        self.assertTrue(self.ledger.has_news(0), "others were not said yet")
        second = self.ledger.claim(0, 10, 5_000)
        self.assertEqual(second.done[0], (f"run_{len(first.done)}", 1))
        self.assertTrue(set(first.done) <= second.running)

    def test_what_ends_while_an_owner_is_away_is_said_at_once_and_puts_off_nothing(self):
        self.claim(0, runs=[given("a"), given("b"), given("c")])
        self.ledger.finish(("a", 1), {"result": "succeeded"})
        self.claim(1)
        self.ledger.finish(("b", 1), {"result": "succeeded"})
        claim = self.ledger.claim(1.05, 10, 5_000)
        self.assertEqual((claim.done, claim.waits), ([("b", 1)], False))
        self.ledger.answered(claim, answer(as_of=claim.number, acks=[{**held("b"), "counted": True}]), 1.05)
        self.assertAlmostEqual(self.ledger.report_at, 1.1)
        self.ledger.begin(("c", 1), LEASE + 2)
        self.assertEqual(self.ledger.report_at, 0.0, "c is given back at once")
        self.assertEqual(self.ledger.beat(1.1).done, [("a", 1)])

    def test_results_that_are_taken_piece_by_piece_wait_for_no_pause(self):
        runs = [given(f"run_{number}") for number in range(100)]
        self.claim(0, runs=runs)
        for run in runs:
            self.ledger.finish((run["id"], 1), {"result": "failed", "error": "x" * 1_000})
        self.claim(0)
        self.claim(0)
        request = self.ledger.claim(1, 10, 5_000)
        acks = [{"id": run, "token": 1, "counted": True} for run, _ in request.done]
        self.ledger.answered(request, answer(as_of=request.number, acks=acks), 1)
        self.assertTrue(self.ledger.has_news(1))

    def test_a_run_that_is_lost_is_forgotten_with_its_result(self):
        self.claim(0, runs=[given("a"), given("b")])
        self.ledger.finish(("a", 1), {"result": "succeeded"})
        news = self.claim(0, lost=[held("a"), held("b")])
        self.assertEqual((news.lost, self.ledger.named), ([("b", 1)], 0))
        self.assertFalse(self.ledger.finish(("b", 1), {"result": "succeeded"}))

    def test_a_newer_token_of_a_run_ends_the_older_one(self):
        self.claim(0, runs=[given("a", 1)])
        news = self.claim(0, runs=[given("a", 2)])
        self.assertEqual(news.lost, [("a", 1)])
        self.assertEqual(self.ledger.beat(0).body["running"], [held("a", 2)])

    def test_whoever_drains_gives_back_what_has_not_begun_and_asks_for_nothing(self):
        self.claim(0, runs=[given("a"), given("b")])
        self.ledger.begin(("a", 1), 0)
        self.ledger.drain()
        body = self.ledger.claim(0, 10, 5_000).body
        self.assertEqual((body["free"], body["wait_ms"], body["draining"]), (0, 0, True))
        self.assertEqual((body["running"], body["released"]), ([held("a")], [held("b")]))

    def test_a_worker_never_has_more_than_it_can_name(self):
        self.claim(0, runs=[given(f"run_{number}") for number in range(995)])
        self.assertEqual(self.ledger.claim(0, 1_000, 0).body["free"], 5)


if __name__ == "__main__":
    unittest.main()
