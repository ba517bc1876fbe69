import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Cancelled } from "../src/index.js";
import { EndOrder } from "../src/order.js";

const WHY = new Cancelled("somebody has cancelled the run");

test("an_order_that_nobody_looks_at_is_not_seen", () => {
  const order = new EndOrder();
  const { signal } = order;
  assert.equal(signal.aborted, false, "looking before there is one is no seeing");
  assert.equal(order.give(WHY), true);
  assert.deepEqual([order.isSeen, order.reason], [false, WHY]);
  assert.equal(order.give(new Cancelled("again")), false);
  assert.equal(order.reason, WHY);
});

test("whoever_reads_asks_or_listens_has_seen_it", () => {
  const looks: ((signal: AbortSignal) => unknown)[] = [
    (signal) => signal.aborted,
    (signal) => signal.reason,
    (signal) => assert.throws(() => signal.throwIfAborted(), WHY),
  ];
  for (const look of looks) {
    const order = new EndOrder();
    const { signal } = order;
    order.give(WHY);
    look(signal);
    assert.ok(order.isSeen, String(look));
  }
  const heard = new EndOrder();
  let reason: unknown;
  heard.signal.addEventListener("abort", () => (reason = "heard"));
  heard.give(WHY);
  assert.deepEqual([reason, heard.isSeen], ["heard", true]);
});

test("what_node_does_with_a_signal_is_seen_and_thrown", async () => {
  const order = new EndOrder();
  const sleeping = sleep(60_000, undefined, { signal: order.signal });
  order.give(WHY);
  const thrown = await sleeping.then(assert.fail, (error: unknown) => error);
  assert.deepEqual([order.isSeen, order.isThrown(thrown)], [true, true]);
  assert.equal(order.signal.aborted, true);
  await assert.rejects(fetch("http://127.0.0.1:9/", { signal: order.signal }), WHY);
});

test("an_error_of_the_handlers_own_is_not_the_order", () => {
  const order = new EndOrder();
  order.give(WHY);
  assert.deepEqual([order.isThrown(new Error("the relay said 451")), order.isThrown("text")], [false, false]);
  assert.ok(order.isThrown(new Error("outer", { cause: WHY })));
});
