import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { Client } from "../src/index.js";
import { TestServer, until } from "./rig.js";

const execute = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../", import.meta.url));

let server: TestServer;
let directory: string;

/** What a stranger has: an empty directory, into which the packed library was installed. */
before(async () => {
  server = await TestServer.start();
  directory = await mkdtemp(join(tmpdir(), "watchbell-package-"));
  await writeFile(join(directory, "package.json"), '{"name": "stranger", "private": true}');
  // `npm test` has built it already.
  await execute("npm", ["pack", "--ignore-scripts", "--pack-destination", directory], { cwd: ROOT });
  await execute("npm", ["install", "--offline", "--no-audit", "--no-fund", "./watchbell-0.1.0.tgz"], { cwd: directory });
});

after(async () => {
  await server?.end();
  if (directory !== undefined) await rm(directory, { recursive: true, force: true });
});

async function blocksOf(page: string, language: string): Promise<string[]> {
  const text = await readFile(join(ROOT, page), "utf8");
  const blocks = text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms"));
  return [...blocks].map((block) => block[1] as string);
}

test("the_package_has_the_library_and_nothing_else", async () => {
  const installed = join(directory, "node_modules/watchbell");
  assert.deepEqual((await readdir(installed)).sort(), ["LICENSE", "README.md", "dist", "package.json"]);
  assert.deepEqual(await readdir(join(directory, "node_modules")).then((names) => names.filter((n) => n[0] !== ".")), [
    "watchbell",
  ]);
  const { stdout } = await execute(process.execPath, [
    "--input-type=module",
    "-e",
    'import * as all from "watchbell"; console.log(Object.keys(all).sort().join())',
  ], { cwd: directory });
  assert.match(stdout, /^Cancelled,Client,Conflict,.*,Worker\n$/);
});

test("the_lines_of_the_readme_work_as_they_are_printed", async () => {
  const [lines] = await blocksOf("README.md", "js");
  assert.ok(lines !== undefined && lines.trim().split("\n").filter((line) => line !== "").length <= 10);
  await writeFile(join(directory, "welcome.mjs"), lines);
  const child = spawn(process.execPath, ["welcome.mjs"], {
    cwd: directory,
    env: { ...process.env, WATCHBELL_SERVER: server.url },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  let printed = "";
  child.stdout.on("data", (data: Buffer) => (printed += data.toString()));
  const id = await until("the run is submitted", () => /run_[0-9a-z]+/.exec(printed)?.[0]);
  const client = new Client({ servers: server.url });
  await until("it has succeeded", async () => (await client.run(id)).state === "succeeded" || undefined);
  assert.equal((await client.output(id)).chunks[0]?.text, "a mail for ann@example.com\n");
  child.kill("SIGTERM");
  assert.deepEqual(await exited, [0, null]);
});

test("the_typescript_of_the_documents_compiles_against_the_package", async () => {
  const blocks = [...(await blocksOf("README.md", "ts")), ...(await blocksOf("../../docs/workers.md", "ts"))];
  assert.equal(blocks.length, 3);
  await mkdir(join(directory, "src"));
  for (const [at, block] of blocks.entries()) await writeFile(join(directory, "src", `block${at}.mts`), block);
  await compile({ typeRoots: [join(ROOT, "node_modules/@types")], types: ["node"] });
});

test("the_package_needs_no_types_of_others", async () => {
  await mkdir(join(directory, "src"), { recursive: true });
  for (const name of await readdir(join(directory, "src"))) await rm(join(directory, "src", name));
  const lines = [
    'import { Client, Worker } from "watchbell";',
    'const worker = new Worker({ queues: ["mail"] });',
    'worker.handle<{ to: string }>("welcome", async (context, { to }) => context.output(to));',
    "await worker.run({ signals: [], stopAfterMs: 1_000 });",
    'await new Client().wait("run_1");',
  ];
  await writeFile(join(directory, "src", "alone.mts"), lines.join("\n"));
  await compile({ types: [] });
});

async function compile(options: { typeRoots?: string[]; types: string[] }): Promise<void> {
  const compilerOptions = { target: "ES2022", module: "NodeNext", strict: true, noEmit: true, ...options };
  await writeFile(join(directory, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["src"] }));
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  await execute(process.execPath, [tsc, "-p", "."], { cwd: directory }).catch((error: { stdout: string }) => {
    assert.fail(error.stdout);
  });
}
