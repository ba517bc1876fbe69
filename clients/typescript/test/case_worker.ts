/**
 * The worker that tests of all languages drive: the same handlers, and the same lines on stdout, in each of them.
 *
 * WATCHBELL_SERVER, WATCHBELL_KEY, WATCHBELL_QUEUE, WATCHBELL_WORKER, CAPACITY and LEASE_MS say what it is to do.
 */

import { writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { Cancelled, DoNotRetry, Worker } from "../src/index.js";
import type { Handler } from "../src/index.js";

const { env } = process;

const worker = new Worker({
  queues: [env["WATCHBELL_QUEUE"] ?? "case"],
  ...(env["WATCHBELL_WORKER"] ? { name: env["WATCHBELL_WORKER"] } : {}),
  capacity: Number(env["CAPACITY"] ?? 4),
  ...(env["LEASE_MS"] ? { leaseMs: Number(env["LEASE_MS"]) } : {}),
});

/** Written before anything else happens, so that a process that dies has said what it began. */
function say(line: string): void {
  writeSync(1, `${line}\n`);
}

function handle<T>(name: string, handler: Handler<T>): void {
  worker.handle<T>(name, async (context, payload) => {
    say(`begin ${context.runId} ${context.attempt} ${context.token}`);
    try {
      await handler(context, payload);
    } finally {
      say(`end ${context.runId} ${context.attempt}`);
    }
  });
}

handle("echo", () => undefined);

handle<{ seconds: number }>("sleep", async (context, { seconds }) => {
  try {
    await sleep(seconds * 1000, undefined, { signal: context.signal });
  } catch (error) {
    if (context.signal.reason instanceof Cancelled) say(`cancelled ${context.runId}`);
    throw error;
  }
});

handle<{ final?: boolean } | undefined>("fail", (_, payload) => {
  throw payload?.final ? new DoNotRetry("no") : new Error("no");
});

handle("progress", (context) => {
  context.progress(50, "half");
  context.output("hello\n");
});

handle("die", () => process.exit(9));

await worker.run();
say("drained");
process.exit(0);
