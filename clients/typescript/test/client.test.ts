import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import {
  Client,
  Conflict,
  LimitReached,
  NotFound,
  Refused,
  Unauthorized,
  Unfinished,
  Unreachable,
} from "../src/index.js";
import type { RunFilter } from "../src/index.js";
import { ofProblem } from "../src/error.js";
import { Loss, StandIn, TestServer, freePort } from "./rig.js";

let server: TestServer;
let client: Client;

before(async () => {
  server = await TestServer.start();
  client = new Client({ servers: server.url });
});

after(() => server?.end());

test("the_generated_types_are_what_the_server_tells", async () => {
  const { readFile } = await import("node:fs/promises");
  const root = new URL("../../", import.meta.url);
  const { generated } = (await import(new URL("scripts/generate.mjs", root).href)) as {
    generated(document: unknown): Promise<string>;
  };
  const document: unknown = await (await fetch(`${server.url}/openapi.json`)).json();
  const committed = await readFile(new URL("src/openapi.ts", root), "utf8");
  assert.ok((await generated(document)) === committed, "src/openapi.ts is old: npm run generate, with a server running");
});

test("a_run_says_all_that_it_may_and_is_shown", async () => {
  const { id, created } = await client.submit({
    queue: "said",
    handler: "welcome",
    payload: { to: "ann@example.com" },
    priority: 2,
    delay: "1h",
    expires_after: "1d",
    timeout: "5m",
    retry: { attempts: 2, delay: "2s", backoff: "constant" },
    delivery: "at_most_once",
    key: "ann",
    unique_key: "once",
    unique_window: "1m",
    labels: { campaign: "spring" },
  });
  assert.ok(created);
  const run = await client.run(id);
  assert.deepEqual([run.id, run.state, run.queued?.queue, run.queued?.priority], [id, "waiting", "said", 2]);
  const again = await client.submit({ queue: "said", handler: "welcome", unique_key: "once" });
  assert.deepEqual(again, { id, created: false });
  await client.cancel(id);
  assert.equal((await client.run(id)).state, "cancelled");
  await assert.rejects(client.cancel(id), NotFound);
});

test("many_runs_are_listed_page_after_page", async () => {
  const specs = Array.from({ length: 25 }, (_, at) => ({ handler: "h", payload: at, labels: { kind: "page" } }));
  const submitted = await client.submitMany("pages", specs);
  assert.equal(new Set(submitted.map((run) => run.id)).size, 25);
  const listed: string[] = [];
  const filter = { state: ["waiting", "running"] as const, labels: { kind: "page" }, pageSize: 10 };
  for await (const run of client.queueRuns("pages", filter)) listed.push(run.id);
  assert.deepEqual(listed, submitted.map((run) => run.id));
  for (const run of submitted) await client.cancel(run.id);
  const ended = new Set<string>();
  for await (const run of client.runs({ state: "cancelled", queue: "pages", pageSize: 10 })) ended.add(run.id);
  assert.deepEqual(ended, new Set(listed));
});

test("a_run_that_ends_between_two_lists_comes_once", async () => {
  const submitted = await client.submitMany("turns", [{ handler: "h" }, { handler: "h" }]);
  const found: string[] = [];
  for await (const run of client.runs({ queue: "turns", pageSize: 1 })) {
    if (found.length === 0) await client.cancel(run.id);
    found.push(run.id);
  }
  assert.deepEqual(found, submitted.map((run) => run.id));
});

test("runs_of_a_queue_are_those_that_have_not_ended_and_then_those_that_have", async () => {
  const [first, second, third] = await client.submitMany("both", [{ handler: "h" }, { handler: "h" }, { handler: "h" }]);
  const [waits, ended] = [[first?.id, third?.id], [second?.id]];
  await client.cancel(second?.id ?? "");
  const found = async (filter: RunFilter): Promise<string[]> => {
    const ids: string[] = [];
    for await (const run of client.runs({ queue: "both", pageSize: 1, ...filter })) ids.push(run.id);
    return ids;
  };
  assert.deepEqual(await found({}), [...waits, ...ended]);
  assert.deepEqual(await found({ state: [] }), [...waits, ...ended]);
  assert.deepEqual(await found({ state: ["running", "waiting"] }), waits);
  assert.deepEqual(await found({ state: "waiting" }), waits);
  assert.deepEqual(await found({ state: ["waiting", "cancelled"] }), [...waits, ...ended]);
  assert.deepEqual(await found({ state: "cancelled" }), ended);
  assert.deepEqual(await found({ state: "running" }), []);
  const later = new Date(Date.now() + 3_600_000);
  assert.deepEqual(await found({ from: later }), []);
  assert.deepEqual(await found({ from: "2020-01-15T09:00:00Z", to: "2021-01-15T09:00:00Z" }), []);
  assert.deepEqual(await found({ to: later, state: "waiting" }), waits);
});

test("a_queue_is_set_paused_and_resumed", async () => {
  const set = await client.setQueue("mail", { concurrency: 20, rate: { runs: 100, per: "1m" } });
  assert.equal(set.spec.concurrency, 20);
  const paused = await client.pauseQueue("mail", { note: "the relay moves", until: new Date(Date.now() + 3_600_000) });
  assert.equal(paused.paused?.note, "the relay moves");
  await assert.rejects(client.pauseQueue("mail"), Conflict);
  assert.ok(!(await client.resumeQueue("mail")).paused);
  const { revision } = await client.queue("mail");
  await client.setQueue("mail", { concurrency: 3 }, { revision });
  await assert.rejects(client.setQueue("mail", { concurrency: 4 }, { revision }), Conflict);
  const names: string[] = [];
  for await (const queue of client.queues({ prefix: "mai" })) names.push(queue.name);
  assert.deepEqual(names, ["mail"]);
});

test("each_error_is_the_thing_to_do_next", async () => {
  await assert.rejects(client.run("run_00y00000000000011m7psmd6tv0jek"), NotFound);
  await assert.rejects(client.queue("nobody"), NotFound);
  await assert.rejects(client.worker("nobody"), NotFound);
  await assert.rejects(client.drain("nobody"), NotFound);
  await assert.rejects(client.submit({ queue: "mail", handler: "h", priority: 17 }), (error: unknown) => {
    assert.ok(error instanceof Refused);
    assert.deepEqual(error.fields.map((field) => field.pointer), ["/priority"]);
    return error.status === 422 && error.name === "Refused" && !error.mayBeDone;
  });
  await client.setQueue("full", { waiting_max: 1 });
  await client.submit({ queue: "full", handler: "h" });
  const impatient = new Client({ servers: server.url, retries: 0 });
  await assert.rejects(impatient.submit({ queue: "full", handler: "h" }), LimitReached);
  const problem = { type: "urn:watchbell:problem:x", title: "x", detail: "x" };
  assert.ok(ofProblem({ ...problem, status: 401 }) instanceof Unauthorized);
  assert.equal(ofProblem({ ...problem, status: 503 }, 2000).kind, "x");
});

test("nobody_there_is_unreachable_and_nothing_was_done", async () => {
  const away = new Client({ servers: `http://127.0.0.1:${await freePort()}`, retries: 1 });
  await assert.rejects(away.queue("mail"), (error: unknown) => error instanceof Unreachable && !error.mayBeDone);
  assert.throws(() => new Client({ servers: "127.0.0.1:7400" }), TypeError);
  assert.throws(() => new Client({ servers: [] }), TypeError);
});

test("a_server_that_is_away_is_asked_until_it_is_back", async () => {
  let asked = 0;
  const away = await StandIn.start((request, response) => {
    asked += 1;
    if (asked <= 6) request.socket.destroy();
    else response.end('{"id": "run_1", "created": true}');
  });
  const said: string[] = [];
  const patient = new Client({ servers: away.url, log: (sentence) => said.push(sentence) });
  assert.ok((await patient.submit({ queue: "mail", handler: "h" })).created);
  assert.equal(asked, 7);
  assert.equal(said.length, 1, said.join());
  away.end();
});

test("a_server_that_stays_away_is_asked_for_as_long_or_as_often_as_the_client_says", async () => {
  let asked = 0;
  const away = await StandIn.start((request) => {
    asked += 1;
    request.socket.destroy();
  });
  await assert.rejects(new Client({ servers: away.url, retries: 2 }).queue("mail"), Unreachable);
  assert.equal(asked, 3);
  await assert.rejects(new Client({ servers: away.url, patienceMs: 0 }).queue("mail"), Unreachable);
  assert.equal(asked, 4);
  away.end();
});

test("a_wait_goes_on_while_the_server_is_started_again", async () => {
  const mortal = await TestServer.start();
  const waiting = new Client({ servers: mortal.url, retries: 0 });
  const { id } = await waiting.submit({ queue: "restart", handler: "h" });
  await assert.rejects(waiting.wait(id, { timeoutMs: 50 }), (error: unknown) => {
    return error instanceof Unfinished && /is waiting after 50 ms$/.test(error.message);
  });
  await mortal.kill();
  await assert.rejects(waiting.wait(id, { timeoutMs: 50 }), (error: unknown) => {
    return error instanceof Unfinished && /no server answers/.test(error.message);
  });
  const run = waiting.wait(id);
  await mortal.restart();
  await waiting.cancel(id);
  assert.equal((await run).state, "cancelled");
  await assert.rejects(client.wait("run_00y00000000000011m7psmd6tv0jek"), NotFound);
  await mortal.end();
});

test("a_payload_that_json_cannot_say_is_refused_at_once", async () => {
  const cycle: unknown[] = [];
  cycle.push(cycle);
  for (const payload of [{ n: 5n }, cycle]) {
    await assert.rejects(client.submit({ queue: "mail", handler: "h", payload }), TypeError);
  }
});

test("another_server_is_asked_if_one_is_gone", async () => {
  const gone = `http://127.0.0.1:${await freePort()}`;
  const several = new Client({ servers: [gone, server.url] });
  for (let time = 0; time < 5; time += 1) {
    const { id } = await several.submit({ queue: "several", handler: "h" });
    assert.equal((await several.run(id)).id, id);
  }
});

test("a_run_whose_answer_was_lost_is_submitted_once", async () => {
  const loss = await Loss.before(server);
  try {
    let lost = 0;
    loss.isLost = () => (lost += 1) <= 2;
    const { created } = await new Client({ servers: loss.url }).submit({ queue: "once", handler: "h" });
    assert.ok(created);
    assert.equal(lost, 3);
    assert.equal((await client.queue("once")).state?.waiting, 1);
  } finally {
    loss.end();
  }
});

test("a_call_is_ended_by_its_signal", async () => {
  const ended = AbortSignal.abort(new Error("enough"));
  await assert.rejects(client.queue("mail", { signal: ended }), /enough/);
});

test("the_key_is_not_shown", async () => {
  const { inspect } = await import("node:util");
  const secret = new Client({ servers: server.url, key: "wbk_1234" });
  assert.ok(!inspect(secret, { depth: 10, showHidden: true }).includes("wbk_1234"));
  for (const key of ["wbk_1234\nx", "wbk_1234\u007f", "wbk_1234\u2026"]) {
    assert.throws(() => new Client({ servers: server.url, key }), (error: unknown) => {
      return error instanceof TypeError && !inspect(error).includes("wbk_1234");
    });
  }
});

test("a_key_may_be_what_a_file_has_with_its_line_end_or_in_a_file_that_the_environment_names", async () => {
  const keys: unknown[] = [];
  const asked = await StandIn.start((request, response) => {
    keys.push(request.headers.authorization);
    response.end("{}");
  });
  await new Client({ servers: asked.url, key: "wbk_1234\r\n" }).queue("mail");
  const directory = await mkdtemp(join(tmpdir(), "watchbell-key-"));
  const file = join(directory, "key");
  await writeFile(file, "wbk_of_file\n");
  try {
    process.env["WATCHBELL_KEY_FILE"] = file;
    await new Client({ servers: asked.url }).queue("mail");
    await new Client({ servers: asked.url, key: "wbk_5" }).queue("mail");
    process.env["WATCHBELL_KEY"] = "wbk_6";
    assert.throws(() => new Client({ servers: asked.url }), /both set/);
  } finally {
    delete process.env["WATCHBELL_KEY_FILE"];
    delete process.env["WATCHBELL_KEY"];
    await rm(directory, { recursive: true });
  }
  assert.deepEqual(keys, ["Bearer wbk_1234", "Bearer wbk_of_file", "Bearer wbk_5"]);
  asked.end();
});

test("a_url_with_a_password_is_refused_and_not_shown", () => {
  for (const servers of ["http://ann:hush@localhost:7400", "ann:hush@localhost:7400", "http://ann:hush@"]) {
    assert.throws(() => new Client({ servers }), (error: unknown) => {
      return error instanceof TypeError && !error.message.includes("hush");
    });
  }
});
