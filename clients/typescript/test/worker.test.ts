import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import {
  Cancelled,
  Client,
  DoNotRetry,
  Lost,
  RetryAfter,
  Stopped,
  Superseded,
  TimedOut,
  Unconfirmed,
  Unreachable,
  Worker,
} from "../src/index.js";
import type { Context, Handler, Run, WorkerOptions } from "../src/index.js";
import type { ClaimRequest } from "../src/wire.js";
import { Loss, StandIn, TestServer, bytes, freePort, until } from "./rig.js";

let server: TestServer;
let client: Client;
let count = 0;

/** Also those whose test failed: they would go on for ever, as workers do. */
const started: Worker[] = [];

/** A handler that waits for its signal, and notes what it is told. */
function sleeper(): { begun: string[]; reasons: unknown[]; handler: Handler<unknown> } {
  const begun: string[] = [];
  const reasons: unknown[] = [];
  const handler = async ({ runId, signal }: Context): Promise<void> => {
    begun.push(runId);
    await sleep(60_000, undefined, { signal }).finally(() => reasons.push(signal.reason));
  };
  return { begun, reasons, handler };
}

/** A queue of its own for each test. */
function fresh(): string {
  count += 1;
  return `queue-${count}`;
}

interface Started {
  /** When the worker has ended, and how. */
  ended: Promise<void>;
  /** Ends it, and waits for that. */
  end(): Promise<void>;
}

function make(queue: string, options: Partial<WorkerOptions> = {}): { worker: Worker; said: string[] } {
  const said: string[] = [];
  const log = (sentence: string): void => void said.push(sentence);
  const worker = new Worker({ servers: server.url, queues: [queue], name: queue, log, ...options });
  // A worker has at least one handler.
  return { worker: worker.handle("nothing", () => undefined), said };
}

function start(worker: Worker): Started {
  started.push(worker);
  const ended = worker.run({ signals: [] });
  ended.catch(() => undefined);
  const end = async (): Promise<void> => {
    await worker.drain({ stopAfterMs: 0 }).catch(() => undefined);
  };
  return { ended, end };
}

function ended(id: string): Promise<Run> {
  return until(`${id} ends`, async () => {
    const run = await client.run(id);
    return ["waiting", "running", "backoff", "blocked"].includes(run.state) ? undefined : run;
  });
}

async function submit(queue: string, handler: string, more: object = {}): Promise<string> {
  return (await client.submit({ queue, handler, ...more })).id;
}

// At the same time: most of them wait.
describe("a worker", { concurrency: 4 }, () => {
  before(async () => {
    server = await TestServer.start();
    client = new Client({ servers: server.url });
  });

  after(async () => {
    await Promise.all(started.map((worker) => worker.drain({ stopAfterMs: 0 }).catch(() => undefined)));
    await TestServer.endAll();
  });

  test("a_handler_is_told_its_run_and_returning_is_success", async () => {
    const queue = fresh();
    const { worker } = make(queue);
    const calls: [Context, { to: string }][] = [];
    worker.handle<{ to: string }>("welcome", async (context, payload) => {
      calls.push([context, payload]);
    });
    const working = start(worker);
    const id = await submit(queue, "welcome", { payload: { to: "ann" }, timeout: "5m" });
    const run = await ended(id);
    assert.deepEqual([run.state, run.attempt, run.attempts[0]?.worker], ["succeeded", 1, queue]);
    const [context, payload] = calls[0] ?? assert.fail();
    assert.deepEqual(payload, { to: "ann" });
    assert.deepEqual([context.runId, context.attempt, context.queue], [id, 1, queue]);
    assert.ok(context.token > 1e15 && Number.isSafeInteger(context.token));
    assert.ok(Math.abs(context.scheduled.getTime() - Date.now()) < 60_000);
    assert.ok(Math.abs((context.deadline?.getTime() ?? 0) - Date.now() - 300_000) < 60_000);
    assert.ok(!context.signal.aborted);
    await working.end();
  });

  test("throwing_is_failure_and_says_whether_and_when_to_try_again", async () => {
    const queue = fresh();
    const { worker } = make(queue);
    const attempts: number[] = [];
    worker.handle("once_more", (context) => {
      attempts.push(context.attempt);
      if (context.attempt === 1) throw new Error("not yet");
    });
    worker.handle("final", () => {
      throw new DoNotRetry("no such address");
    });
    worker.handle("later", () => {
      throw new RetryAfter(1_800_000, "the relay said 451");
    });
    worker.handle("strange", () => {
      throw "\ud800 a text";
    });
    worker.handle("mute", () => {
      throw Object.assign(new Error(), { message: { code: 5 } });
    });
    const working = start(worker);
    const retry = { attempts: 3, delay: "1s", backoff: "constant" };
    const [once, final, later, strange, mute] = await Promise.all([
      submit(queue, "once_more", { retry }),
      submit(queue, "final", { retry }),
      submit(queue, "later", { retry }),
      submit(queue, "strange", { retry: { attempts: 1 } }),
      submit(queue, "mute", { retry: { attempts: 1 } }),
    ]);
    const failed = await ended(final);
    assert.deepEqual([failed.state, failed.attempt, failed.attempts[0]?.error], ["failed", 1, "no such address"]);
    assert.equal((await ended(strange)).attempts[0]?.error, "\ufffd a text");
    assert.equal((await ended(mute)).attempts[0]?.error, "[object Object]");
    const waits = await until("it waits", async () => {
      const run = await client.run(later);
      return run.state === "backoff" ? run : undefined;
    });
    const wait = new Date(waits.not_before ?? 0).getTime() - Date.now();
    assert.ok(wait > 1_700_000 && wait < 2_100_000, `${wait}`);
    const succeeded = await ended(once);
    assert.deepEqual([succeeded.state, succeeded.attempts[0]?.error], ["succeeded", "not yet"]);
    assert.deepEqual(attempts, [1, 2]);
    await working.end();
  });

  test("an_unknown_handler_and_a_command_fail_for_good_and_say_so", async () => {
    const queue = fresh();
    const { worker } = make(queue);
    const working = start(worker);
    const unknown = await ended(await submit(queue, "nobody"));
    assert.equal(unknown.state, "failed");
    assert.match(unknown.attempts[0]?.error ?? "", /has no handler "nobody"/);
    const { id } = await client.submit({ queue, command: { argv: ["/bin/true"] } });
    const command = await ended(id);
    assert.match(command.attempts[0]?.error ?? "", /no commands/);
    await working.end();
  });

  test("a_name_has_one_handler_and_a_worker_at_least_one", async () => {
    const { worker } = make(fresh());
    assert.throws(() => worker.handle("nothing", () => undefined), (error: unknown) => {
      return error instanceof TypeError && /"nothing" already: give this one another name/.test(error.message);
    });
    const idle = new Worker({ servers: server.url, queues: ["q"] });
    await assert.rejects(idle.run({ signals: [] }), (error: unknown) => {
      return error instanceof TypeError && /call handle\("name", ...\) before run/.test(error.message);
    });
    const working = start(idle.handle("h", () => undefined));
    await working.end();
  });

  test("a_cancelled_run_aborts_its_signal", async () => {
    const queue = fresh();
    const { worker } = make(queue, { leaseMs: 1_000 });
    const { begun, reasons, handler } = sleeper();
    worker.handle("sleep", handler);
    const working = start(worker);
    const id = await submit(queue, "sleep");
    await until("it executes", () => begun.includes(id) || undefined);
    await client.cancel(id);
    assert.equal((await ended(id)).state, "cancelled");
    assert.ok(reasons[0] instanceof Cancelled);
    await working.end();
  });

  test("a_handler_that_has_seen_the_cancel_is_cancelled_and_one_that_never_looked_is_what_it_did", async () => {
    const queue = fresh();
    const { worker } = make(queue, { leaseMs: 1_000, capacity: 8 });
    const { begun, handler } = sleeper();
    let finish = (): void => undefined;
    const finished = new Promise<void>((resolve) => (finish = resolve));
    worker.handle("throws", handler);
    worker.handle("swallows", (context, payload) => (handler(context, payload) as Promise<void>).catch(() => undefined));
    worker.handle("deaf", async ({ runId }) => {
      begun.push(runId);
      await finished;
    });
    const working = start(worker);
    const names = ["deaf", "swallows", "throws"];
    const ids = await Promise.all(names.map((name) => submit(queue, name)));
    await until("all execute", () => begun.length === 3 || undefined);
    for (const id of ids) await client.cancel(id);
    // Whoever tells of the last one has told of those before it.
    assert.equal((await ended(ids[2] ?? "")).state, "cancelled");
    finish();
    const states = await Promise.all(ids.map(async (id) => (await ended(id)).state));
    assert.deepEqual(states, ["succeeded", "cancelled", "cancelled"]);
    await working.end();
  });

  test("a_payload_that_does_not_fit_is_a_final_failure", async () => {
    const queue = fresh();
    const { worker } = make(queue);
    const payloads: number[] = [];
    const payload = (value: unknown): number => {
      if (typeof value !== "number") throw new TypeError("a number is needed");
      return value;
    };
    worker.handle<number>("count", (_, number) => void payloads.push(number), { payload });
    const working = start(worker);
    const good = await ended(await submit(queue, "count", { payload: 5 }));
    const bad = await ended(await submit(queue, "count", { payload: "five" }));
    assert.deepEqual([good.state, bad.state, bad.attempt, payloads], ["succeeded", "failed", 1, [5]]);
    assert.equal(bad.attempts[0]?.error, "the payload does not fit: a number is needed");
    await working.end();
  });

  test("a_strict_run_is_told_to_end_when_its_confirmation_lapses", async () => {
    const own = await TestServer.start();
    const ask = new Client({ servers: own.url });
    const queue = fresh();
    const { worker } = make(queue, { servers: own.url, leaseMs: 1_000 });
    const { begun, reasons, handler } = sleeper();
    worker.handle("sleep", handler);
    await ask.setQueue(queue, { lease: "strict" });
    const working = start(worker);
    const { id } = await ask.submit({ queue, handler: "sleep" });
    await until("it executes", () => begun.includes(id) || undefined);
    await own.kill();
    await until("it is told to end", () => reasons[0] instanceof Unconfirmed || undefined);
    await own.restart();
    await working.end();
    await own.end();
  });

  test("a_run_that_takes_too_long_fails_whether_its_handler_listens_or_not", async () => {
    const queue = fresh();
    const { worker } = make(queue, { graceMs: 200, leaseMs: 2_000 });
    const reasons: unknown[] = [];
    let release = (): void => undefined;
    worker.handle("listens", async ({ signal }) => {
      await sleep(60_000, undefined, { signal }).finally(() => reasons.push(signal.reason));
    });
    worker.handle("does_not", () => new Promise<void>((resolve) => (release = resolve)));
    const working = start(worker);
    const more = { timeout: "1s", retry: { attempts: 1 } };
    const runs = await Promise.all([submit(queue, "listens", more), submit(queue, "does_not", more)]);
    for (const run of await Promise.all(runs.map(ended))) {
      assert.equal(run.state, "dead");
      assert.match(run.attempts[0]?.error ?? "", /longer than its timeout of 1000 ms/);
    }
    assert.ok(reasons[0] instanceof TimedOut);
    release();
    await working.end();
  });

  test("output_and_progress_are_shown_while_it_executes_and_afterwards", async () => {
    const queue = fresh();
    const { worker } = make(queue);
    let finish = (): void => undefined;
    worker.handle("print", async (context) => {
      context.output("begun\n");
      context.output(new Uint8Array([0xff]), "stderr");
      context.progress(40, "page 4 of 10");
      await new Promise<void>((resolve) => (finish = resolve));
      for (let line = 0; line < 3_000; line += 1) context.output(`line ${line} ${"ä".repeat(20)}\n`);
      context.progress(100);
    });
    const working = start(worker);
    const id = await submit(queue, "print");
    const progress = await until("progress", async () => (await client.run(id)).queued?.progress ?? undefined);
    assert.deepEqual([progress.percent, progress.text], [40, "page 4 of 10"]);
    const first = await client.output(id);
    assert.deepEqual(first.chunks.map((chunk) => chunk.text ?? chunk.base64), ["begun\n", "/w=="]);
    for (const { at } of first.chunks) assert.ok(Math.abs(new Date(at ?? 0).getTime() - Date.now()) < 60_000);
    finish();
    assert.equal((await ended(id)).state, "succeeded");
    const last = await client.output(id);
    assert.ok(last.chunks.at(-1)?.text?.endsWith(`line 2999 ${"ä".repeat(20)}\n`));
    assert.equal(last.progress?.percent, 100);
    await working.end();
  });

  test("as_many_execute_as_there_is_capacity_and_all_end_once", async () => {
    const queue = fresh();
    const { worker } = make(queue, { capacity: 7 });
    let now = 0;
    let most = 0;
    const begun = new Map<string, number>();
    worker.handle("work", async ({ runId }) => {
      begun.set(runId, (begun.get(runId) ?? 0) + 1);
      most = Math.max(most, (now += 1));
      await sleep(5);
      now -= 1;
    });
    const runs = await client.submitMany(queue, Array.from({ length: 200 }, () => ({ handler: "work" })));
    const working = start(worker);
    await until("all are done", async () => {
      const { state } = await client.queue(queue);
      return (state?.waiting === 0 && state.running === 0) || undefined;
    });
    assert.equal(most, 7);
    assert.deepEqual([...begun.values()], runs.map(() => 1));
    await working.end();
  });

  test("heartbeats_keep_a_run_for_longer_than_its_lease", async () => {
    const queue = fresh();
    const { worker } = make(queue, { leaseMs: 1_000, capacity: 1 });
    const attempts: number[] = [];
    worker.handle("long", async ({ attempt }) => {
      attempts.push(attempt);
      await sleep(2_600);
    });
    const working = start(worker);
    const run = await ended(await submit(queue, "long"));
    assert.deepEqual([run.state, attempts], ["succeeded", [1]]);
    await working.end();
  });

  test("draining_finishes_what_executes_and_takes_no_more", async () => {
    const queue = fresh();
    const { worker } = make(queue, { capacity: 2 });
    let finish: (() => void) | undefined;
    worker.handle("work", () => new Promise<void>((resolve) => (finish = resolve)));
    const working = start(worker);
    const first = await submit(queue, "work");
    await until("it executes", () => finish !== undefined || undefined);
    const drained = worker.drain();
    await until("servers know", async () => (await client.worker(queue)).state === "draining" || undefined);
    const second = await submit(queue, "work");
    finish?.();
    await drained;
    await working.ended;
    assert.equal((await client.run(first)).state, "succeeded");
    assert.equal((await client.run(second)).state, "waiting");
  });

  test("a_worker_drains_when_a_server_asks_for_it", async () => {
    const queue = fresh();
    const { worker, said } = make(queue);
    const working = start(worker);
    await until("it is heard", () => client.worker(queue).then((one) => one, () => undefined));
    await client.drain(queue);
    await working.ended;
    assert.deepEqual(said, ["somebody wants this worker to drain"]);
  });

  test("a_drain_that_a_server_asks_for_is_no_first_signal", async () => {
    const queue = fresh();
    const { worker, said } = make(queue);
    const { begun, reasons, handler } = sleeper();
    worker.handle("sleep", handler);
    started.push(worker);
    const working = worker.run({ signals: ["SIGUSR2"] });
    const id = await submit(queue, "sleep");
    await until("it executes", () => begun.includes(id) || undefined);
    await client.drain(queue);
    await until("it drains", () => said.length > 0 || undefined);
    process.emit("SIGUSR2");
    // Timers of one length end in their order: what the signal began is done.
    await sleep(1);
    assert.equal(reasons.length, 0);
    process.emit("SIGUSR2");
    await working;
    assert.ok(reasons[0] instanceof Stopped);
  });

  test("a_handler_that_drain_does_not_wait_for_is_stopped_and_costs_no_attempt", async () => {
    const queue = fresh();
    const { worker } = make(queue);
    const { begun, reasons, handler } = sleeper();
    worker.handle("sleep", handler);
    const working = start(worker);
    const id = await submit(queue, "sleep", { retry: { attempts: 1 } });
    await until("it executes", () => begun.includes(id) || undefined);
    await worker.drain({ stopAfterMs: 50 });
    await working.ended;
    assert.ok(reasons[0] instanceof Stopped);
    assert.ok(["waiting", "backoff"].includes((await client.run(id)).state));
    const other = make(queue, { name: `${queue}-other` });
    other.worker.handle("sleep", () => undefined);
    const second = start(other.worker);
    const run = await ended(id);
    assert.deepEqual([run.state, run.attempt], ["succeeded", 2]);
    await second.end();
  });

  test("a_server_that_wants_to_be_let_alone_for_an_hour_is_asked_again", async () => {
    let asked = 0;
    const busy = await StandIn.start((_, response) => {
      asked += 1;
      response.writeHead(503, { "retry-after": "3600" }).end();
    });
    const { worker } = make(fresh(), { servers: busy.url, leaseMs: 1_000 });
    const working = start(worker);
    await until("it is asked again", () => asked > 1 || undefined);
    await working.end();
    busy.end();
  });

  test("a_run_that_nobody_confirms_is_asked_after_with_pauses_that_grow", async () => {
    const run = { id: "a", token: 1, attempt: 1, queue: "q", scheduled: "2027-01-15T09:00:00Z", handler: "h" };
    const beats: number[] = [];
    const far = await StandIn.start(async (request, response) => {
      const isBeat = request.url !== "/v1/claim";
      if (isBeat) beats.push(performance.now());
      const said = JSON.parse((await bytes(request)).toString()) as ClaimRequest;
      const acks = (said.released ?? []).map((one) => ({ ...one, counted: true }));
      const told = { runs: isBeat ? [] : [run], acks, lost: [], cancel: [], unheard: said.running };
      response.end(JSON.stringify({ ...told, cookie: "c", as_of: 0, beat_ms: 3_000, lease_ms: 15_000 }));
    });
    const { worker } = make(fresh(), { servers: far.url, capacity: 1 });
    const working = start(worker);
    await until("it is asked after", () => beats.length >= 5 || undefined);
    // At least 50, 100, 200 and 400 ms, but for what timers are early.
    assert.ok((beats[4] ?? 0) - (beats[0] ?? 0) >= 740, `${beats}`);
    await working.end();
    far.end();
  });

  test("a_beat_beside_a_claim_that_waits_hears_of_a_cancel", async () => {
    const run = { id: "a", token: 1, attempt: 1, queue: "q", scheduled: "2027-01-15T09:00:00Z", handler: "sleep" };
    let claims = 0;
    const waits = await StandIn.start(async (request, response) => {
      const isClaim = request.url === "/v1/claim";
      const said = JSON.parse((await bytes(request)).toString()) as ClaimRequest;
      claims += isClaim ? 1 : 0;
      // The second claim gets no answer.
      if (isClaim && claims > 1) return;
      const runs = isClaim ? [run] : [];
      const acks = (said.done ?? []).map((one) => ({ id: one.id, token: one.token, counted: true }));
      const told = { runs, acks, lost: [], cancel: said.running ?? [], unheard: [], cookie: "c", as_of: said.number };
      response.end(JSON.stringify({ ...told, beat_ms: 200, lease_ms: 1_000 }));
    });
    const { worker } = make(fresh(), { servers: waits.url, leaseMs: 1_000 });
    const { reasons, handler } = sleeper();
    worker.handle("sleep", handler);
    const working = start(worker);
    await until("it is told", () => reasons[0] instanceof Cancelled || undefined);
    assert.equal(claims, 2);
    await working.end();
    waits.end();
  });

  test("a_later_life_of_the_same_name_ends_the_earlier_one", async () => {
    const queue = fresh();
    const earlier = make(queue);
    const { begun, reasons, handler } = sleeper();
    earlier.worker.handle("sleep", handler);
    const later = make(queue);
    later.worker.handle("sleep", () => undefined);
    const first = start(earlier.worker);
    const id = await submit(queue, "sleep");
    await until("it executes", () => begun.includes(id) || undefined);
    const second = start(later.worker);
    await assert.rejects(first.ended, Superseded);
    await until("the handler is told", () => reasons[0] instanceof Lost || undefined);
    assert.equal((await ended(id)).state, "succeeded");
    await second.end();
  });

  test("a_worker_that_servers_refuse_says_so_and_ends", async () => {
    const bad = start(make("q", { name: "a b" }).worker);
    await assert.rejects(bad.ended, /name|letters|worker/);
    assert.throws(() => make("q", { capacity: 0 }), RangeError);
    assert.throws(() => make("q", { leaseMs: 10 }), RangeError);
  });

  test("answers_that_are_lost_neither_lose_a_run_nor_carry_one_out_twice", async () => {
    const queue = fresh();
    const loss = await Loss.before(server);
    const { worker } = make(queue, { servers: loss.url, capacity: 5 });
    const begun = new Map<string, number>();
    worker.handle("work", ({ runId }) => void begun.set(runId, (begun.get(runId) ?? 0) + 1));
    let requests = 0;
    let lost = 0;
    loss.isLost = () => {
      requests += 1;
      const isLost = requests % 3 === 0;
      lost += isLost ? 1 : 0;
      return isLost;
    };
    const runs = await client.submitMany(queue, Array.from({ length: 40 }, () => ({ handler: "work" })));
    const working = start(worker);
    await until("all are done", async () => {
      const { state } = await client.queue(queue);
      return (state?.waiting === 0 && state.running === 0) || undefined;
    });
    for (const { id } of runs) assert.equal((await client.run(id)).state, "succeeded");
    assert.deepEqual([...begun.values()], runs.map(() => 1));
    assert.ok(lost >= 3, `${lost}`);
    await working.end();
    loss.end();
  });

  test("a_server_that_is_gone_and_comes_back_costs_no_result", async () => {
    const own = await TestServer.start();
    const ask = new Client({ servers: own.url });
    const queue = fresh();
    const { worker, said } = make(queue, { servers: [`http://127.0.0.1:${await freePort()}`, own.url], leaseMs: 5_000 });
    let finish = (): void => undefined;
    const attempts: number[] = [];
    worker.handle("work", (context) => {
      attempts.push(context.attempt);
      return new Promise<void>((resolve) => (finish = resolve));
    });
    const working = start(worker);
    const { id } = await ask.submit({ queue, handler: "work" });
    await until("it executes", () => attempts.length > 0 || undefined);
    await own.kill();
    await until("it is said", () => said.length > 0 || undefined);
    finish();
    await own.restart();
    await until("the result is there", async () => (await ask.run(id)).state === "succeeded" || undefined);
    assert.deepEqual(attempts, [1]);
    await until("it is said", () => said.length === 2 || undefined);
    assert.match(said[0] ?? "", /what executes goes on, and results are kept/);
    assert.match(said[1] ?? "", /answers again/);
    const { id: next } = await ask.submit({ queue, handler: "work" });
    await until("it goes on", () => attempts.length > 1 || undefined);
    finish();
    await until("the next is done", async () => (await ask.run(next)).state === "succeeded" || undefined);
    await working.end();
    await own.end();
  });

  test("results_that_nobody_acknowledges_are_told_as_lost_when_the_worker_must_end", async () => {
    const own = await TestServer.start();
    const ask = new Client({ servers: own.url });
    const queue = fresh();
    const { worker } = make(queue, { servers: own.url, graceMs: 0 });
    const { begun, reasons, handler } = sleeper();
    worker.handle("sleep", handler);
    const working = start(worker);
    const { id } = await ask.submit({ queue, handler: "sleep" });
    await until("it executes", () => begun.includes(id) || undefined);
    await own.kill();
    const drained = worker.drain({ stopAfterMs: 0 });
    await until("it is told to end", () => reasons.length > 0 || undefined);
    // Who says it again does not make it slower.
    void worker.drain({ stopAfterMs: 60_000 });
    void worker.drain({ stopAfterMs: 0 });
    await assert.rejects(working.ended, (error: unknown) => {
      return error instanceof Unreachable && /results of 1 runs/.test(error.message);
    });
    await drained;
    await worker.drain();
    await own.end();
  });

  test("a_third_signal_ends_a_worker_at_once_that_no_server_answers", async () => {
    const own = await TestServer.start();
    const ask = new Client({ servers: own.url });
    const queue = fresh();
    const { worker } = make(queue, { servers: own.url, graceMs: 600_000 });
    const { begun, reasons, handler } = sleeper();
    let finish = (): void => undefined;
    worker.handle("sleep", handler);
    worker.handle("deaf", async ({ runId }) => {
      begun.push(runId);
      await new Promise<void>((resolve) => (finish = resolve));
    });
    const ended = worker.run({ signals: ["SIGUSR2"] });
    ended.catch(() => undefined);
    started.push(worker);
    await ask.submit({ queue, handler: "sleep" });
    await ask.submit({ queue, handler: "deaf" });
    await until("both execute", () => begun.length === 2 || undefined);
    await own.kill();
    process.emit("SIGUSR2", "SIGUSR2");
    assert.equal(reasons.length, 0);
    process.emit("SIGUSR2", "SIGUSR2");
    await until("one is told to end, and does", () => reasons[0] instanceof Stopped || undefined);
    process.emit("SIGUSR2", "SIGUSR2");
    await assert.rejects(ended, (error: unknown) => {
      return error instanceof Unreachable && /results of 2 runs/.test(error.message);
    });
    assert.equal(process.listenerCount("SIGUSR2"), 0);
    finish();
    await own.end();
  });

  test("a_signal_waits_for_handlers_as_long_as_the_program_says", async () => {
    const queue = fresh();
    const { worker } = make(queue);
    const { begun, reasons, handler } = sleeper();
    worker.handle("sleep", handler);
    const ended = worker.run({ signals: ["SIGWINCH"], stopAfterMs: 50 });
    ended.catch(() => undefined);
    started.push(worker);
    const id = await submit(queue, "sleep");
    await until("it executes", () => begun.includes(id) || undefined);
    process.emit("SIGWINCH", "SIGWINCH");
    await ended;
    assert.ok(reasons[0] instanceof Stopped);
    await client.cancel(id);
  });
});
