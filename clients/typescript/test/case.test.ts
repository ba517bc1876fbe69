import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Client } from "../src/index.js";
import { TestServer, until } from "./rig.js";

let server: TestServer;
let client: Client;

before(async () => {
  server = await TestServer.start();
  client = new Client({ servers: server.url });
});

after(() => server?.end());

/** The program `case_worker`, and what it has said. */
class Case {
  readonly #child: ChildProcess;
  readonly exited: Promise<number | null>;
  lines: string[] = [];

  constructor(queue: string, env: Record<string, string> = {}) {
    const program = fileURLToPath(new URL("case_worker.js", import.meta.url));
    this.#child = spawn(process.execPath, [program], {
      env: { ...process.env, WATCHBELL_SERVER: server.url, WATCHBELL_QUEUE: queue, WATCHBELL_WORKER: queue, ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let text = "";
    this.#child.stdout?.on("data", (data: Buffer) => {
      text += data.toString();
      this.lines = text.split("\n").slice(0, -1);
    });
    this.exited = once(this.#child, "close").then(([code]) => code as number | null);
  }

  has(start: string): Promise<string> {
    return until(`the worker says ${start}`, () => this.lines.find((line) => line.startsWith(start)));
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }
}

async function state(id: string, wanted: string): Promise<void> {
  await until(`${id} is ${wanted}`, async () => (await client.run(id)).state === wanted || undefined);
}

test("the_case_worker_keeps_its_contract", async () => {
  const worker = new Case("case", { LEASE_MS: "2000" });
  const submit = async (handler: string, payload?: unknown, more: object = {}): Promise<string> =>
    (await client.submit({ queue: "case", handler, payload, ...more })).id;
  const echo = await submit("echo");
  await state(echo, "succeeded");
  assert.match(await worker.has(`begin ${echo}`), new RegExp(`^begin ${echo} 1 [0-9]+$`));
  await worker.has(`end ${echo} 1`);
  const progress = await submit("progress");
  await state(progress, "succeeded");
  const output = await client.output(progress);
  assert.deepEqual([output.chunks[0]?.text, output.progress?.percent, output.progress?.text], ["hello\n", 50, "half"]);
  const final = await submit("fail", { final: true });
  await state(final, "failed");
  assert.equal((await client.run(final)).attempts[0]?.error, "no");
  await state(await submit("fail", { final: false }, { retry: { attempts: 1 } }), "dead");
  const sleeper = await submit("sleep", { seconds: 60 });
  await worker.has(`begin ${sleeper}`);
  await client.cancel(sleeper);
  await state(sleeper, "cancelled");
  await worker.has(`cancelled ${sleeper}`);
  const last = await submit("sleep", { seconds: 0.5 });
  await worker.has(`begin ${last}`);
  worker.kill("SIGTERM");
  assert.equal(await worker.exited, 0);
  assert.equal(worker.lines.at(-1), "drained");
  await state(last, "succeeded");
});

test("a_run_under_which_workers_die_is_carried_out_again_and_is_poison_after_three", async () => {
  const { id } = await client.submit({ queue: "die", handler: "die" });
  const lives: Case[] = [];
  for (let life = 1; life <= 3; life += 1) {
    const worker = new Case("die", { LEASE_MS: "1000" });
    lives.push(worker);
    await worker.has(`begin ${id} ${life}`);
    assert.equal(await worker.exited, 9);
  }
  await state(id, "dead");
  assert.equal((await client.run(id)).queued?.poison, true);
});

test("the_run_of_a_killed_worker_is_carried_out_again", async () => {
  const { id } = await client.submit({ queue: "kill", handler: "sleep", payload: { seconds: 0.3 } });
  const first = new Case("kill", { LEASE_MS: "60000" });
  await first.has(`begin ${id} 1`);
  first.kill("SIGKILL");
  await first.exited;
  // The same name: its next life says that earlier ones may have begun what nobody names.
  const second = new Case("kill", { LEASE_MS: "60000" });
  await second.has(`begin ${id} 2`);
  await state(id, "succeeded");
  second.kill("SIGTERM");
  assert.equal(await second.exited, 0);
});
