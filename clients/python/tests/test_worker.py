"""Workers, against a real server: what becomes of runs, and what happens when things die.

What all libraries promise alike is tested elsewhere, by one list for all of them: crates/cli/tests/dev/library.rs.
"""

import asyncio
import logging
import threading
import unittest
from dataclasses import dataclass

from server import TestServer, eventually

from watchbell import (
    Cancelled,
    Client,
    Failed,
    GiveUp,
    Refused,
    Retry,
    RetryAfter,
    RunSpec,
    Superseded,
    Unreported,
    Worker,
)

ONCE = Retry(attempts=1)


def setUpModule():
    global server
    server = TestServer()
    unittest.addModuleCleanup(server.close)
    logging.getLogger("watchbell").addHandler(logging.NullHandler())
    logging.getLogger("watchbell").propagate = False


class WorkerCase(unittest.TestCase):
    def setUp(self):
        self.queue = self.id().rpartition(".")[2][:100]
        self.client = Client(server.url)
        self.addCleanup(self.client.close)
        self.raised = []

    def worker(self, **settings):
        settings = {"name": self.queue, "capacity": 8, "lease": 5.0, **settings}
        return Worker(settings.pop("servers", server.url), self.queue, **settings)

    def start(self, worker):
        def live():
            try:
                worker.run()
            except BaseException as why:
                self.raised.append(why)

        thread = threading.Thread(target=live)
        thread.start()

        def stop():
            worker.drain()
            worker.drain()
            thread.join()

        self.addCleanup(lambda: thread.is_alive() and stop())
        return thread

    def submit(self, handler, payload=None, **fields):
        return self.client.submit(self.queue, handler, payload, **fields).id

    def state(self, run_id):
        return self.client.wait(run_id, 20).state


class Results(WorkerCase):
    def test_functions_and_coroutines_get_context_and_payload(self):
        worker, seen = self.worker(), []

        @worker.handler("function")
        def function(context, payload):
            seen.append((context.run_id, context.attempt, context.queue, payload, context.deadline))

        @worker.handler("coroutine", timeout=60)
        async def coroutine(context, payload):
            await asyncio.sleep(0)
            seen.append((context.run_id, context.attempt, context.queue, payload, None))
            assert 50 < context.remaining <= 60

        self.start(worker)
        ids = [self.submit("function", {"n": 1}), self.submit("coroutine", [2], retry=ONCE)]
        self.assertEqual([self.state(run_id) for run_id in ids], ["succeeded"] * 2)
        expected = [(ids[0], 1, self.queue, {"n": 1}, None), (ids[1], 1, self.queue, [2], None)]
        self.assertEqual(sorted(seen), sorted(expected))

    def test_an_exception_is_a_failure_with_its_text_and_its_traceback_in_the_output(self):
        worker = self.worker()

        @worker.handler("bad")
        def bad(context, payload):
            raise KeyError("no such relay \ud800")

        self.start(worker)
        run_id = self.submit("bad", retry=ONCE)
        run = self.client.wait(run_id, 20)
        self.assertEqual((run.state, run.attempts[0].error), ("dead", "KeyError: 'no such relay \\ud800'"))
        chunk = self.client.output(run_id).chunks[0]
        self.assertEqual(chunk.stream, "stderr")
        self.assertIn(b"in bad", chunk.data)
        self.assertNotIn(b"carry_out", chunk.data)

    def test_a_failure_is_logged_with_its_run_and_without_the_payload(self):
        worker = self.worker()

        @worker.handler("bad")
        def bad(context, payload):
            raise KeyError("no such relay")

        @worker.handler("give_up")
        async def give_up(context, payload):
            raise GiveUp("no")

        @worker.handler("good")
        def good(context, payload):
            pass

        with self.assertLogs("watchbell", logging.INFO) as logged:
            self.start(worker)
            ids = [self.submit(name, "secret", retry=ONCE) for name in ("bad", "give_up", "good")]
            for run_id in ids:
                self.state(run_id)
        told = [record.getMessage() for record in logged.records if record.levelno == logging.INFO]
        self.assertIn(f"{ids[0]}: attempt 1 failed: KeyError: 'no such relay'", told)
        self.assertIn(f"{ids[1]}: attempt 1 failed: GiveUp: no", told)
        self.assertFalse([line for line in told if ids[2] in line or "secret" in line])

    def test_an_exception_that_cannot_be_shown_is_a_failure_with_its_name(self):
        class Mute(Exception):
            def __str__(self):
                raise ValueError("no")

        worker = self.worker(capacity=1)

        @worker.handler("mute")
        def mute(context, payload):
            raise Mute

        @worker.handler("mute_async")
        async def mute_async(context, payload):
            raise Mute

        @worker.handler("later")
        def later(context, payload):
            raise RetryAfter("5", "busy")

        thread = self.start(worker)
        ids = [self.submit(name, retry=ONCE) for name in ("mute", "mute_async", "later")]
        errors = [self.client.wait(run_id, 20).attempts[0].error for run_id in ids]
        self.assertEqual(errors, ["Mute", "Mute", "RetryAfter"])
        worker.drain()
        thread.join(20)
        self.assertFalse(thread.is_alive())

    def test_giving_up_is_final_and_the_others_are_tried_again(self):
        worker = self.worker()

        @worker.handler("give_up")
        def give_up(context, payload):
            raise GiveUp("no")

        @worker.handler("later")
        async def later(context, payload):
            raise RetryAfter(1_800, "busy")

        @worker.handler("again")
        def again(context, payload):
            if context.attempt == 1:
                raise Failed("no")

        self.start(worker)
        ids = [self.submit(name, retry=Retry(delay=1)) for name in ("give_up", "later", "again")]
        run = self.client.wait(ids[0], 20)
        self.assertEqual((run.state, run.attempt, run.attempts[0].error), ("failed", 1, "no"))
        backoff = eventually(lambda: [run for run in [self.client.run(ids[1])] if run.state == "backoff"], "it waits")[0]
        self.assertGreater((backoff.not_before - backoff.slot).total_seconds(), 1_700)
        run = self.client.wait(ids[2], 20)
        self.assertEqual((run.state, run.attempt), ("succeeded", 2))

    def test_a_run_that_nobody_can_carry_out_fails_for_good_and_says_why(self):
        worker = self.worker()

        @worker.handler("known")
        def known(context, payload):
            pass

        self.start(worker)
        run = self.client.wait(self.submit("unknown"), 20)
        self.assertEqual((run.state, run.attempt), ("failed", 1))
        self.assertIn("no handler 'unknown'; it has: known", run.attempts[0].error)
        command = self.client.submit(self.queue, command={"argv": ["/bin/true"]}).id
        self.assertEqual(self.state(command), "failed")

    def test_a_typed_payload_is_made_and_one_that_does_not_fit_is_final(self):
        @dataclass
        class Welcome:
            to: str
            name: str = "you"

        worker, seen = self.worker(), []

        @worker.handler("welcome", payload=Welcome)
        def welcome(context, payload):
            seen.append(payload)

        self.start(worker)
        self.assertEqual(self.state(self.submit("welcome", {"to": "ann"})), "succeeded")
        self.assertEqual(seen, [Welcome("ann")])
        run = self.client.wait(self.submit("welcome", {"too": 1}), 20)
        self.assertEqual((run.state, run.attempt), ("failed", 1))
        self.assertIn("does not fit", run.attempts[0].error)

    def test_a_dataclass_is_made_of_an_object_and_of_nothing_else(self):
        @dataclass
        class Welcome:
            to: str = "you"

        worker, seen = self.worker(), []

        @worker.handler("welcome", payload=Welcome)
        def welcome(context, payload):
            seen.append(payload)

        self.start(worker)
        kinds = {"ann": "a string", 5: "a number", True: "a boolean", ("ann",): "an array", None: "null"}
        for payload, kind in kinds.items():
            run = self.client.wait(self.submit("welcome", payload), 20)
            error = f"the payload does not fit: TypeError: Welcome is made of a JSON object, and this is {kind}"
            self.assertEqual((run.state, run.attempt, run.attempts[0].error), ("failed", 1, error))
        self.assertEqual(seen, [])

    def test_output_and_progress_are_seen_while_the_run_executes_and_afterwards(self):
        worker, goes_on = self.worker(), threading.Event()

        @worker.handler("print")
        def print_some(context, payload):
            context.progress(50, "half")
            context.print("one", 2)
            goes_on.wait(20)
            context.output("ä" * 50_000, "stderr")
            context.print("last")

        self.start(worker)
        self.addCleanup(goes_on.set)
        run_id = self.submit("print")
        output = eventually(lambda: [out for out in [self.client.output(run_id)] if out.text], "something is printed")[0]
        self.assertEqual((output.text, output.attempt), ("one 2\n", 1))
        progress = self.client.run(run_id).queued.progress
        self.assertEqual((progress.percent, progress.text), (50, "half"))
        goes_on.set()
        self.assertEqual(self.state(run_id), "succeeded")
        output = self.client.output(run_id)
        self.assertEqual(output.bytes, 6 + 100_000 + 5)
        self.assertTrue(output.text.endswith("äälast\n"))

    def test_many_runs_are_each_carried_out_once(self):
        worker, seen = self.worker(capacity=50), []

        @worker.handler("count")
        def count(context, payload):
            seen.append(payload)

        @worker.handler("count_async")
        async def count_async(context, payload):
            seen.append(payload)

        names = ("count", "count_async")
        self.client.submit_many(self.queue, [RunSpec(names[n % 2], n) for n in range(1_000)])
        self.start(worker)
        state = self.client.queue
        eventually(lambda: not (state(self.queue).state.waiting or state(self.queue).state.running), "all are done")
        self.assertEqual(sorted(seen), list(range(1_000)))


class Endings(WorkerCase):
    def test_a_coroutine_cleans_up_when_it_is_cancelled(self):
        worker, begun, cleaned = self.worker(lease=1.0, grace=5.0), threading.Event(), []

        @worker.handler("upload")
        async def upload(context, payload):
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0)  # Cleaning up may wait.
                cleaned.append(context.cancelled.reason)
                raise

        self.start(worker)
        run_id = self.submit("upload")
        self.assertTrue(begun.wait(20))
        self.client.cancel(run_id)
        self.assertEqual((self.state(run_id), cleaned), ("cancelled", ["cancelled"]))

    def test_a_cancelled_run_ends_at_once_whether_function_or_coroutine(self):
        worker, begun, seen = self.worker(lease=1.0), [], []

        @worker.handler("function")
        def function(context, payload):
            begun.append(context.run_id)
            context.cancelled.wait(60)

        @worker.handler("check")
        def check(context, payload):
            begun.append(context.run_id)
            try:
                while True:
                    context.cancelled.wait(0.01)
                    context.check()
            except Cancelled:
                assert context.cancelled.reason == "cancelled"
                raise

        @worker.handler("coroutine")
        async def coroutine(context, payload):
            begun.append(context.run_id)
            await asyncio.sleep(60)

        @worker.handler("waits")
        async def waits(context, payload):
            begun.append(context.run_id)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await context.cancelled.wait_async()

        @worker.handler("helped")
        async def helped(context, payload):
            async def help():
                while not await context.cancelled.wait_async(0.01):
                    pass
                seen.append(context.cancelled.reason)

            helper = asyncio.create_task(help())
            begun.append(context.run_id)
            try:
                await asyncio.sleep(60)
            finally:
                await helper

        @worker.handler("returns")
        async def returns(context, payload):
            begun.append(context.run_id)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return  # It was thrown the cancel, so it has seen it.

        self.start(worker)
        names = ("function", "check", "coroutine", "waits", "helped", "returns")
        ids = [self.submit(name) for name in names]
        eventually(lambda: len(begun) == len(names), "all have begun")
        for run_id in ids:
            self.client.cancel(run_id)
        self.assertEqual([self.state(run_id) for run_id in ids], ["cancelled"] * len(names))
        self.assertEqual(seen, ["cancelled"])

    def test_one_that_never_looked_is_reported_as_what_came_of_it(self):
        worker, begun, goes_on = self.worker(lease=1.0), threading.Event(), threading.Event()

        @worker.handler("deaf")
        def deaf(context, payload):
            begun.set()
            goes_on.wait(20)
            while context.cancelled._peek() is None:
                threading.Event().wait(0.01)

        self.start(worker)
        run_id = self.submit("deaf")
        self.assertTrue(begun.wait(20))
        self.client.cancel(run_id)
        goes_on.set()
        self.assertEqual(self.state(run_id), "succeeded")

    def test_a_timeout_ends_coroutines_and_reports_functions_that_go_on(self):
        worker, goes_on = self.worker(grace=0.2), threading.Event()
        self.addCleanup(goes_on.set)

        @worker.handler("coroutine")
        async def coroutine(context, payload):
            await asyncio.sleep(60)

        @worker.handler("listens")
        def listens(context, payload):
            assert context.cancelled.wait(60) and context.cancelled.reason == "timeout"

        @worker.handler("deaf")
        def deaf(context, payload):
            goes_on.wait(60)

        self.start(worker)
        ids = [self.submit(name, timeout=1, retry=ONCE) for name in ("coroutine", "listens", "deaf")]
        for run_id in ids:
            run = self.client.wait(run_id, 20)
            self.assertEqual((run.state, run.attempts[0].error), ("dead", "it took longer than its timeout of 1 s"))

    def test_no_attempt_begins_here_while_an_earlier_one_of_the_same_run_executes(self):
        worker, goes_on, attempts = self.worker(grace=0.1, lease=15.0), threading.Event(), []
        self.addCleanup(goes_on.set)

        @worker.handler("deaf")
        def deaf(context, payload):
            attempts.append(("begin", context.attempt))
            if context.attempt == 1:
                goes_on.wait(60)
            attempts.append(("end", context.attempt))

        self.start(worker)
        run_id = self.submit("deaf", timeout=1, retry=Retry(attempts=2, delay=1, backoff="constant"))
        eventually(lambda: self.client.run(run_id).attempt == 2, "it is given again")
        self.assertEqual(attempts, [("begin", 1)])
        goes_on.set()
        self.assertEqual(self.state(run_id), "succeeded")
        self.assertEqual(attempts, [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)])

    def test_whoever_drains_finishes_and_reports_and_takes_nothing_more(self):
        worker, begun, goes_on = self.worker(capacity=1), threading.Event(), threading.Event()
        self.addCleanup(goes_on.set)

        @worker.handler("slow")
        def slow(context, payload):
            begun.set()
            goes_on.wait(20)

        thread = self.start(worker)
        first = self.submit("slow")
        self.assertTrue(begun.wait(20))
        second = self.submit("slow")
        worker.drain()
        eventually(lambda: self.client.worker(self.queue).state == "draining", "it says that it drains")
        goes_on.set()
        thread.join(20)
        self.assertEqual(self.raised, [])
        self.assertEqual((self.client.run(first).state, self.client.run(second).state), ("succeeded", "waiting"))

    def test_whoever_drains_and_waits_no_longer_stops_handlers_without_a_failure(self):
        worker, begun = self.worker(drain_timeout=0.1, grace=0.5), []

        @worker.handler("function")
        def function(context, payload):
            begun.append(1)
            context.cancelled.wait(60)

        @worker.handler("coroutine")
        async def coroutine(context, payload):
            begun.append(2)
            await asyncio.sleep(60)

        @worker.handler("deaf")
        def deaf(context, payload):
            begun.append(3)
            threading.Event().wait(15)

        thread = self.start(worker)
        ids = [self.submit(name) for name in ("function", "coroutine", "deaf")]
        eventually(lambda: len(begun) == 3, "all have begun")
        worker.drain()
        thread.join(20)
        self.assertFalse(thread.is_alive())
        for run_id in ids:
            run = self.client.run(run_id)
            self.assertFalse(run.is_ended, run)
            self.assertNotEqual(run.state, "running")

    def test_a_worker_that_somebody_wants_to_drain_does(self):
        worker = self.worker()
        thread = self.start(worker)
        eventually(lambda: [known for known in self.client.workers() if known.name == self.queue], "it is heard")
        self.client.drain(self.queue)
        thread.join(20)
        self.assertFalse(thread.is_alive())

    def test_a_worker_in_an_event_loop_carries_out_coroutines_there(self):
        worker, loops = self.worker(), []

        @worker.handler("where")
        async def where(context, payload):
            loops.append(asyncio.get_running_loop())

        async def main():
            life = asyncio.ensure_future(worker.run_async())
            run_id = await asyncio.to_thread(self.submit, "where")
            run = await asyncio.to_thread(self.client.wait, run_id, 20)
            life.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await life
            return run.state, loops == [asyncio.get_running_loop()]

        self.assertEqual(asyncio.run(main()), ("succeeded", True))


class Deaths(WorkerCase):
    def test_a_strict_run_is_told_to_end_when_its_confirmation_lapses_and_others_go_on(self):
        with TestServer() as mortal:
            worker, begun, goes_on, reasons = self.worker(servers=mortal.url, lease=1.0), [], threading.Event(), {}
            self.addCleanup(goes_on.set)

            @worker.handler("function")
            def function(context, payload):
                begun.append(context.run_id)
                context.cancelled.wait(20)
                reasons["function"] = context.cancelled.reason

            @worker.handler("coroutine")
            async def coroutine(context, payload):
                begun.append(context.run_id)
                try:
                    await asyncio.sleep(20)
                finally:
                    reasons["coroutine"] = context.cancelled.reason

            with Client(mortal.url) as client:
                client.set_queue(self.queue, lease="strict")
                client.submit(self.queue, "function")
                client.submit(self.queue, "coroutine")
                self.start(worker)
                eventually(lambda: len(begun) == 2, "both have begun")
                mortal.kill()
                eventually(lambda: len(reasons) == 2, "both are told to end")
            self.assertEqual(set(reasons.values()), {"unconfirmed"})

    def test_a_run_that_takes_longer_than_the_lease_is_kept_by_beats(self):
        worker, attempts = self.worker(lease=1.0), []

        @worker.handler("long")
        def long(context, payload):
            attempts.append(context.attempt)
            context.cancelled.wait(2.5)

        self.start(worker)
        run = self.client.wait(self.submit("long"), 20)
        self.assertEqual((run.state, attempts), ("succeeded", [1]))

    def test_results_are_kept_while_the_server_is_gone_and_it_is_said_once(self):
        with TestServer() as mortal:
            worker, begun, goes_on = self.worker(servers=mortal.url, lease=2.0), threading.Event(), threading.Event()

            @worker.handler("slow")
            def slow(context, payload):
                begun.set()
                goes_on.wait(20)

            client = Client(mortal.url)
            thread = self.start(worker)
            with self.assertLogs("watchbell", "WARNING") as logged:
                run_id = client.submit(self.queue, "slow").id
                self.assertTrue(begun.wait(20))
                mortal.kill()
                eventually(lambda: [line for line in logged.output if "goes on" in line], "it is said that it is gone")
                goes_on.set()
                mortal.start()
                run = client.wait(run_id, 20)
                eventually(lambda: [line for line in logged.output if "answers again" in line], "it is said that it is back")
            self.assertEqual((run.state, run.attempt), ("succeeded", 1))
            self.assertEqual(len([line for line in logged.output if "goes on" in line]), 1, logged.output)
            next_run = client.submit(self.queue, "slow").id
            self.assertEqual(client.wait(next_run, 20).state, "succeeded")
            worker.drain()
            thread.join(20)
            self.assertEqual(self.raised, [])
            client.close()

    def test_results_that_no_server_takes_are_told_when_the_worker_ends(self):
        with TestServer() as mortal:
            worker, begun, goes_on = self.worker(servers=mortal.url, lease=1.0), threading.Event(), threading.Event()

            @worker.handler("slow")
            def slow(context, payload):
                begun.set()
                goes_on.wait(20)

            thread = self.start(worker)
            with Client(mortal.url) as client:
                run_id = client.submit(self.queue, "slow").id
            self.assertTrue(begun.wait(20))
            mortal.kill()
            worker.drain()
            goes_on.set()
            thread.join(20)
            self.assertIsInstance(self.raised[0], Unreported)

    def test_a_third_call_to_drain_ends_a_worker_at_once_that_no_server_answers(self):
        with TestServer() as mortal:
            worker = self.worker(servers=mortal.url, lease=3_600.0, grace=3_600.0)
            begun, goes_on = threading.Event(), threading.Event()
            self.addCleanup(goes_on.set)

            @worker.handler("deaf")
            def deaf(context, payload):
                begun.set()
                goes_on.wait(20)

            thread = self.start(worker)
            with Client(mortal.url) as client:
                run_id = client.submit(self.queue, "deaf").id
            self.assertTrue(begun.wait(20))
            mortal.kill()
            for _ in range(3):
                worker.drain()
            thread.join(20)
            self.assertEqual([raised.run_ids for raised in self.raised], [(run_id,)])
            self.assertEqual(self.raised[0].run_ids, (run_id,))

    def test_the_later_of_two_workers_with_one_name_wins(self):
        first, second, ended = self.worker(), self.worker(), []

        @first.handler("echo")
        @second.handler("echo")
        def echo(context, payload):
            ended.append(context.attempt)

        thread = self.start(first)
        self.assertEqual(self.state(self.submit("echo")), "succeeded")
        self.start(second)
        thread.join(20)
        self.assertIsInstance(self.raised[0], Superseded)
        self.assertEqual(self.state(self.submit("echo")), "succeeded")

    def test_a_first_request_that_is_refused_ends_the_worker_with_what_was_said(self):
        worker = Worker(server.url, ["no/such name"], name="bad name")
        with self.assertRaises(Refused) as caught:
            worker.run()
        self.assertIn("/worker", [field.where for field in caught.exception.errors])
        with self.assertRaises(ValueError):
            Worker(server.url, [])


if __name__ == "__main__":
    unittest.main()
