/** How many handlers a second, beside a bare loop of claims that does nothing else, in the same run. */

import { Client, Worker } from "../src/index.js";
import type { ClaimAnswer } from "../src/wire.js";
import { TestServer } from "./rig.js";

const RUNS = 20_000;
const CAPACITY = 100;

async function fill(server: TestServer, queue: string): Promise<void> {
  const client = new Client({ servers: server.url });
  for (let sent = 0; sent < RUNS; sent += 1_000) {
    await client.submitMany(queue, Array.from({ length: 1_000 }, () => ({ handler: "echo", payload: { a: 1 } })));
  }
}

/** Claims and reports, with `fetch` and nothing else. */
async function bare(server: TestServer, queue: string): Promise<number> {
  await fill(server, queue);
  const incarnation = Date.now() * 1000;
  let cookie: string | undefined;
  let done: object[] = [];
  let acks = 0;
  const started = performance.now();
  for (let number = 1; acks < RUNS; number += 1) {
    const answer = await fetch(`${server.url}/v1/claim`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        worker: queue, incarnation, since: incarnation, number, settled: number - 1, cookie,
        queues: [queue], free: CAPACITY, wait_ms: 1_000, done,
      }),
    });
    const told = (await answer.json()) as ClaimAnswer;
    cookie = told.cookie;
    acks += told.acks.length;
    done = told.runs.map((run) => ({ id: run.id, token: run.token, result: "succeeded" }));
  }
  return (RUNS * 1_000) / (performance.now() - started);
}

async function library(server: TestServer, queue: string): Promise<number> {
  await fill(server, queue);
  let ended = 0;
  const worker = new Worker({ servers: server.url, queues: [queue], name: queue, capacity: CAPACITY });
  worker.handle("echo", () => {
    if ((ended += 1) === RUNS) void worker.drain();
  });
  const started = performance.now();
  await worker.run();
  return (RUNS * 1_000) / (performance.now() - started);
}

const server = await TestServer.start();
try {
  for (let round = 1; round <= 3; round += 1) {
    const loop = await bare(server, `bare-${round}`);
    const handlers = await library(server, `library-${round}`);
    const share = (handlers / loop).toFixed(2);
    console.log(`handlers ${Math.round(handlers)}/s, bare loop ${Math.round(loop)}/s, ratio ${share}`);
  }
} finally {
  await server.end();
}
