import assert from "node:assert/strict";
import { test } from "node:test";

import { BadToken, Ledger } from "../src/ledger.js";
import type { Said } from "../src/ledger.js";
import type { ClaimAnswer, ClaimedRun } from "../src/wire.js";

const LEASE_MS = 10_000;

function ledger(capacity = 4): Ledger {
  return new Ledger({ worker: "w", queues: ["q"], capacity, leaseMs: LEASE_MS, incarnation: 7 });
}

function given(id: string, token = 1): ClaimedRun {
  return { id, token, attempt: 1, queue: "q", scheduled: "2027-01-15T09:00:00Z", handler: "h" };
}

/** The answer to this request, if nothing else is said. */
function answer(said: Said<unknown>, told: Partial<ClaimAnswer> = {}): ClaimAnswer {
  return {
    runs: [],
    acks: [],
    lost: [],
    cancel: [],
    unheard: [],
    cookie: "c",
    as_of: said.number,
    beat_ms: LEASE_MS / 5,
    lease_ms: LEASE_MS,
    ...told,
  };
}

/** A ledger that was given these runs at 0, and has begun them. */
function begun(...runs: ClaimedRun[]): Ledger {
  const book = ledger();
  const said = book.claim(0);
  book.take(said, answer(said, { runs }), 0);
  assert.deepEqual(book.begin(0), runs);
  return book;
}

const ids = (runs: readonly { id: string }[] | null | undefined): string[] => (runs ?? []).map((run) => run.id);

test("numbers_grow_and_a_claim_is_settled_once_it_is_answered_or_given_up", () => {
  const book = ledger();
  const first = book.claim(0);
  assert.deepEqual([first.body.number, first.body.settled, first.body.cookie], [1, 0, undefined]);
  assert.equal(book.beat(0).body.settled, 0, "a claim that is open is not settled");
  book.take(first, answer(first), 0);
  const second = book.claim(0);
  assert.deepEqual([second.body.number, second.body.settled, second.body.cookie], [3, 1, "c"]);
  book.fail(second);
  assert.deepEqual(book.beat(0).body.settled, 3);
});

test("labels_go_with_claims_and_with_nothing_else", () => {
  const labels = { zone: "b" };
  const book = new Ledger({ worker: "w", queues: ["q"], capacity: 4, leaseMs: LEASE_MS, incarnation: 7, labels });
  assert.deepEqual([book.claim(0).body.labels, "labels" in book.beat(0).body], [labels, false]);
  assert.ok(!("labels" in ledger().claim(0).body));
});

test("it_tells_until_when_a_run_is_confirmed", () => {
  const book = begun(given("a"));
  assert.equal(book.confirmedUntil(given("a")), LEASE_MS);
  const beat = book.beat(3);
  book.take(beat, answer(beat), 4);
  assert.deepEqual([book.confirmedUntil(given("a")), book.confirmedUntil(given("a", 2))], [LEASE_MS + 3, undefined]);
});

test("the_answer_to_a_settled_claim_gives_nothing", () => {
  const book = ledger();
  const said = book.claim(0);
  book.settle(said.number);
  book.take(said, answer(said, { runs: [given("a")] }), 0);
  assert.deepEqual(book.begin(0), []);
  assert.ok(book.isEmpty);
});

test("a_run_begins_only_within_its_lease_from_the_sending_of_the_request_as_of", () => {
  const book = ledger();
  const said = book.claim(0);
  book.take(said, answer(said, { runs: [given("a")] }), LEASE_MS);
  assert.deepEqual(book.begin(LEASE_MS), []);
  assert.ok(book.hasNews(LEASE_MS), "it is to be confirmed");
  const beat = book.beat(LEASE_MS);
  assert.deepEqual(ids(beat.body.running), ["a"]);
  book.take(beat, answer(beat), LEASE_MS + 1);
  assert.deepEqual(ids(book.begin(LEASE_MS + 1)), ["a"]);
});

test("as_of_an_unknown_request_confirms_nothing", () => {
  const book = ledger();
  const said = book.claim(0);
  book.take(said, answer(said, { runs: [given("a")], as_of: 0 }), 1);
  assert.deepEqual(book.begin(1), []);
});

test("what_was_unheard_is_not_confirmed", () => {
  const book = ledger();
  const said = book.claim(0);
  book.take(said, answer(said, { runs: [given("a")] }), LEASE_MS);
  const beat = book.beat(LEASE_MS);
  book.take(beat, answer(beat, { unheard: [{ id: "a", token: 1 }] }), LEASE_MS + 1);
  assert.deepEqual(book.begin(LEASE_MS + 1), []);
});

test("a_result_is_repeated_until_it_is_acknowledged", () => {
  const book = begun(given("a"));
  book.report({ id: "a", token: 1, result: "succeeded" });
  book.end("a");
  const lost = book.claim(1);
  assert.deepEqual(ids(lost.body.done), ["a"]);
  assert.ok(!book.hasNews(1));
  book.fail(lost);
  assert.ok(book.hasNews(1));
  const beat = book.beat(2);
  assert.deepEqual([ids(beat.body.done), ids(beat.body.running)], [["a"], []]);
  book.take(beat, answer(beat), 2);
  const named = book.beat(3);
  assert.deepEqual([ids(named.body.done), ids(named.body.running)], [[], ["a"]], "its owner was not asked: later");
  book.take(named, answer(named), 3);
  const last = book.beat(102);
  assert.deepEqual(ids(last.body.done), ["a"]);
  book.take(last, answer(last, { acks: [{ id: "a", token: 1, counted: false }] }), 102);
  assert.ok(book.isEmpty);
});

test("everything_that_is_held_is_named", () => {
  const book = begun(given("a"), given("b"), given("c"));
  book.report({ id: "b", token: 1, result: "failed", error: "no" });
  const { body } = book.beat(1);
  assert.deepEqual([ids(body.done), ids(body.running), body.since], [["b"], ["a", "c"], 7]);
});

test("results_that_are_too_much_for_one_request_are_named_as_running_and_told_later", () => {
  const book = ledger(100);
  const said = book.claim(0);
  const runs = Array.from({ length: 100 }, (_, at) => given(`r${at}`));
  book.take(said, answer(said, { runs }), 0);
  for (const run of book.begin(0)) {
    book.report({ id: run.id, token: 1, result: "failed", error: "x".repeat(1000) });
    book.end(run.id);
  }
  const first = book.beat(1);
  const told = first.body.done?.length ?? 0;
  assert.ok(told > 0 && told < 100);
  assert.equal(told + (first.body.running?.length ?? 0), 100);
  assert.ok(JSON.stringify(first.body).length < 200_000);
  assert.equal(book.free(1), told, "what is not told yet takes its place");
  assert.ok(book.hasNews(1));
});

test("results_that_their_owner_did_not_take_hold_up_no_others", () => {
  const book = ledger(100);
  const said = book.claim(0);
  const runs = Array.from({ length: 100 }, (_, at) => given(`r${at}`));
  book.take(said, answer(said, { runs }), 0);
  for (const run of book.begin(0)) {
    book.report({ id: run.id, token: 1, result: "failed", error: "x".repeat(1000) });
    book.end(run.id);
  }
  const first = book.beat(1);
  book.take(first, answer(first), 1);
  assert.ok(book.hasNews(1), "others were not told yet");
  const second = book.beat(1);
  assert.equal(ids(second.body.done)[0], `r${first.told.length}`);
  assert.deepEqual(ids(second.body.running).slice(-first.told.length), ids(first.body.done), "they are named");
});

test("what_ends_while_an_owner_is_away_is_told_at_once_and_puts_off_nothing", () => {
  const book = begun(given("a"), given("b"), given("c"));
  book.report({ id: "a", token: 1, result: "succeeded" });
  const untaken = book.beat(1_000);
  book.take(untaken, answer(untaken), 1_000);
  assert.deepEqual([book.hasNews(1_000), book.repeatDue, book.free(1_000)], [false, 1_100, 1]);
  book.report({ id: "b", token: 1, result: "succeeded" });
  assert.ok(book.hasNews(1_050));
  const said = book.claim(1_050);
  assert.deepEqual([ids(said.body.done), ids(said.body.running), said.body.wait_ms], [["b"], ["c", "a"], 0]);
  book.take(said, answer(said, { acks: [{ id: "b", token: 1, counted: true }] }), 1_050);
  const named = book.claim(1_060);
  assert.deepEqual([ids(named.body.done), named.body.wait_ms], [[], book.waitMs]);
  book.take(named, answer(named), 1_060);
  assert.equal(book.repeatDue, 1_100, "a waits for its pause, and no longer");
  assert.deepEqual(ids(book.beat(1_100).body.done), ["a"]);
});

test("a_claim_that_reports_is_answered_at_once_and_another_waits", () => {
  const book = begun(given("a"));
  const idle = book.claim(1);
  assert.equal(idle.body.wait_ms, book.waitMs);
  book.take(idle, answer(idle), 1);
  book.report({ id: "a", token: 1, result: "succeeded" });
  assert.equal(book.claim(2).body.wait_ms, 0);
});

test("a_lost_run_is_ended_and_its_result_forgotten", () => {
  const book = begun(given("a"), given("b"));
  book.report({ id: "b", token: 1, result: "succeeded" });
  book.end("b");
  const beat = book.beat(1);
  const orders = book.take(beat, answer(beat, { lost: [{ id: "a", token: 1 }, { id: "b", token: 1 }] }), 1);
  assert.deepEqual(ids(orders.lost), ["a"]);
  assert.ok(book.isEmpty);
  assert.equal(book.free(1), 3, "the handler of a still executes");
  book.report({ id: "a", token: 1, result: "succeeded" });
  book.end("a");
  assert.ok(book.isEmpty);
  assert.equal(book.free(1), 4);
});

test("lost_and_cancel_of_another_token_mean_nothing", () => {
  const book = begun(given("a", 2));
  const beat = book.beat(1);
  const other = [{ id: "a", token: 1 }];
  const orders = book.take(beat, answer(beat, { lost: other, cancel: other }), 1);
  assert.deepEqual([orders.lost, orders.cancel], [[], []]);
  assert.ok(!book.isEmpty);
});

test("a_newer_token_waits_until_the_older_handler_has_ended", () => {
  const book = begun(given("a", 1));
  const said = book.claim(1);
  const orders = book.take(said, answer(said, { runs: [given("a", 2)] }), 1);
  assert.deepEqual(orders.lost, [{ id: "a", token: 1 }]);
  assert.deepEqual(book.begin(1), []);
  assert.deepEqual(book.beat(1).body.running, [{ id: "a", token: 2 }]);
  book.report({ id: "a", token: 1, result: "succeeded" });
  book.end("a");
  assert.deepEqual(book.begin(2), [given("a", 2)]);
  assert.deepEqual(book.beat(2).body.done, []);
});

test("cancel_is_told_once_and_ends_what_never_began", () => {
  const book = begun(given("a"));
  const said = book.claim(0);
  book.take(said, answer(said, { runs: [given("b")] }), LEASE_MS);
  const cancel = [{ id: "a", token: 1 }, { id: "b", token: 1 }];
  const beat = book.beat(LEASE_MS);
  const orders = book.take(beat, answer(beat, { cancel }), LEASE_MS);
  assert.deepEqual(ids(orders.cancel), ["a"]);
  assert.deepEqual(book.begin(LEASE_MS), []);
  const next = book.beat(LEASE_MS);
  assert.deepEqual(next.body.done, [{ id: "b", token: 1, result: "cancelled" }]);
  assert.deepEqual(book.take(next, answer(next, { cancel }), LEASE_MS).cancel, []);
});

test("draining_gives_back_what_never_began_and_wants_no_more", () => {
  const book = begun(given("a"));
  const said = book.claim(0);
  book.take(said, answer(said, { runs: [given("b")] }), LEASE_MS);
  book.drain();
  assert.equal(book.free(0), 0);
  assert.deepEqual(book.begin(LEASE_MS), []);
  const beat = book.beat(LEASE_MS);
  assert.deepEqual([ids(beat.body.released), ids(beat.body.running)], [["b"], ["a"]]);
  assert.equal(beat.body.draining, true);
  book.take(beat, answer(beat, { acks: [{ id: "b", token: 1, counted: true }] }), LEASE_MS);
  assert.deepEqual(ids(book.beat(LEASE_MS).body.released), []);
});

test("a_late_answer_does_not_bring_an_older_cookie_back", () => {
  const book = ledger();
  const beat = book.beat(0);
  const said = book.claim(0);
  book.take(said, answer(said, { cookie: "new" }), 0);
  book.take(beat, answer(beat, { cookie: "old" }), 0);
  assert.equal(book.claim(0).body.cookie, "new");
});

test("a_token_that_numbers_cannot_hold_is_refused", () => {
  const book = ledger();
  const said = book.claim(0);
  assert.throws(() => book.take(said, answer(said, { runs: [given("a", 2 ** 53)] }), 0), BadToken);
  const next = book.claim(0);
  book.take(next, answer(next, { runs: [given("a", 2 ** 53 - 1)] }), 0);
  assert.equal(book.begin(0)[0]?.token, Number.MAX_SAFE_INTEGER);
});
