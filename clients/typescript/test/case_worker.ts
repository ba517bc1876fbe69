/**
 * The worker of the list of cases that is the same for all libraries: it says on stdout what its handlers do.
 *
 * WATCHBELL_SERVER, WATCHBELL_KEY, WATCHBELL_QUEUE, WATCHBELL_WORKER, CAPACITY, LEASE_MS and LABELS (`zone=b`) say what it is to
 * do. SIGTERM drains it. crates/cli/tests/dev/library.rs has the cases.
 */

import { existsSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { Cancelled, DoNotRetry, Lost, RetryAfter, Stopped, TimedOut, Unconfirmed, Worker } from "../src/index.js";
import type { Context, Handler, HandlerOptions } from "../src/index.js";

const { env } = process;

const pairs = (env["LABELS"] ?? "").split(",").filter((pair) => pair !== "");

const worker = new Worker({
  queues: (env["WATCHBELL_QUEUE"] ?? "case").split(","),
  ...(env["WATCHBELL_WORKER"] ? { name: env["WATCHBELL_WORKER"] } : {}),
  capacity: Number(env["CAPACITY"] ?? 4),
  ...(env["LEASE_MS"] ? { leaseMs: Number(env["LEASE_MS"]) } : {}),
  labels: Object.fromEntries(pairs.map((pair) => pair.split("=") as [string, string])),
});

/** Written before anything else happens, so that a process that dies has said what it began. */
function say(line: string): void {
  writeSync(1, `${line}\n`);
}

const REASONS: [new (text: string) => Error, string][] = [
  [Cancelled, "cancelled"],
  [TimedOut, "timeout"],
  [Lost, "lost"],
  [Unconfirmed, "unconfirmed"],
  [Stopped, "stopping"],
];

function sayTold({ runId, signal }: Context): void {
  const word = REASONS.find(([reason]) => signal.reason instanceof reason)?.[1] ?? String(signal.reason);
  say(`told ${runId} ${word}`);
}

function handle<T>(name: string, handler: Handler<T>, options: HandlerOptions<T> = {}): void {
  const told: Handler<T> = async (context, payload) => {
    say(`begin ${context.runId} ${context.attempt} ${context.token}`);
    try {
      await handler(context, payload);
    } finally {
      say(`end ${context.runId} ${context.attempt}`);
    }
  };
  worker.handle<T>(name, told, options);
}

handle("echo", () => undefined);

/** Sleeps, and ends early when it is told to. */
handle<{ seconds: number }>("sleep", async (context, { seconds }) => {
  try {
    await sleep(seconds * 1000, undefined, { signal: context.signal });
  } catch (error) {
    sayTold(context);
    throw error;
  }
});

/** Waits until it is told to end, and returns then. */
handle("looks", async (context) => {
  while (!context.signal.aborted) await sleep(10);
  sayTold(context);
});

/** Waits for a file, and never looks whether it is to end. */
handle<{ file: string }>("deaf", async (_, { file }) => {
  while (!existsSync(file)) await sleep(10);
});

handle<{ final: boolean }>("fail", (_, { final }) => {
  throw final ? new DoNotRetry("no") : new Error("no");
});

handle<{ ms: number }>("later", ({ attempt }, { ms }) => {
  if (attempt === 1) throw new RetryAfter(ms, "busy");
});

handle<{ to: string }>("typed", (context, { to }) => context.output(to), {
  payload: (value) => {
    const { to } = value as { to?: unknown };
    if (typeof to !== "string") throw new TypeError("`to` is a text");
    return { to };
  },
});

handle("progress", (context) => {
  context.progress(50, "half");
  context.output("hello\n");
});

handle("die", () => process.exit(9));

await worker.run();
say("drained");
process.exit(0);
