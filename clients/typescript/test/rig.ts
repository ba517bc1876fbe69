/** A real server in a directory of its own, and waiting for what is to come. */

import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import type { IncomingMessage, RequestListener, Server, ServerResponse } from "node:http";
import { createServer as createTcpServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** How long anything may take that does come. */
const PATIENCE_MS = 20_000;

/** Looks again and again until it gives something. */
export async function until<T>(what: string, look: () => Promise<T | undefined> | T | undefined): Promise<T> {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    const seen = await look();
    if (seen !== undefined && seen !== false) return seen;
    if (performance.now() > end) throw new Error(`it did not come in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export class TestServer {
  static readonly #all = new Set<TestServer>();
  #child: ChildProcess | undefined;
  #log = "";

  private constructor(
    readonly url: string,
    readonly directory: string,
  ) {}

  /** Ends also those whose test failed: a process waits for its children. */
  static async endAll(): Promise<void> {
    await Promise.all([...TestServer.#all].map((server) => server.end()));
  }

  static async start(): Promise<TestServer> {
    const directory = await mkdtemp(join(tmpdir(), "watchbell-test-"));
    for (let tried = 0; ; tried += 1) {
      const server = new TestServer(`http://127.0.0.1:${await freePort()}`, directory);
      try {
        TestServer.#all.add(server);
        await server.restart();
        return server;
      } catch (error) {
        // Somebody else took the port in between.
        await server.kill();
        if (tried === 3) throw error;
      }
    }
  }

  /** Starts it on the data that it has. */
  async restart(): Promise<void> {
    const listen = this.url.replace("http://", "");
    const child = spawn(binary(), ["dev", "--listen", listen, "--data", join(this.directory, "data")], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data: Buffer) => (this.#log += data.toString()));
    }
    await until(`the server is ready at ${this.url}`, async () => {
      if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}:\n${this.#log}`);
      const answer = await fetch(`${this.url}/readyz`).catch(() => undefined);
      await answer?.arrayBuffer();
      return answer?.ok || undefined;
    });
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    }
  }

  async end(): Promise<void> {
    await this.kill();
    await rm(this.directory, { recursive: true, force: true });
  }
}

function binary(): string {
  const path = process.env["WATCHBELL_BINARY"];
  if (path === undefined || !existsSync(path)) {
    throw new Error(
      "these tests need a server: set WATCHBELL_BINARY to the program watchbell, such as target/release/watchbell",
    );
  }
  return path;
}

export async function freePort(): Promise<number> {
  const listener = createTcpServer();
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  listener.close();
  await once(listener, "close");
  return port;
}

/** What stands between a worker and its server, and can lose answers after the server gave them. */
export class Loss {
  /** Whether the answer to this request is lost. */
  isLost: (path: string, answer: string) => boolean = () => false;
  readonly #http: Server;

  private constructor(target: string) {
    this.#http = createServer((request, response) => {
      void this.#pass(target, request, response).catch(() => response.destroy());
    });
  }

  static async before(server: TestServer): Promise<Loss> {
    const loss = new Loss(server.url);
    loss.#http.listen(0, "127.0.0.1");
    await once(loss.#http, "listening");
    return loss;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  end(): void {
    this.#http.close();
    this.#http.closeAllConnections();
  }

  async #pass(target: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await bytes(request);
    const headers = { ...request.headers, host: new URL(target).host };
    const onward = httpRequest(target + request.url, { method: request.method, headers, agent: false });
    response.on("close", () => onward.destroy());
    onward.end(body);
    const [answer] = (await once(onward, "response")) as [IncomingMessage];
    const told = await bytes(answer);
    if (this.isLost(request.url ?? "", told.toString())) {
      response.destroy();
      return;
    }
    response.writeHead(answer.statusCode ?? 500, answer.headers).end(told);
  }
}

/** What answers in the place of a server, as a test says. */
export class StandIn {
  readonly #http: Server;

  private constructor(http: Server) {
    this.#http = http;
  }

  static async start(answer: RequestListener): Promise<StandIn> {
    const http = createServer(answer);
    http.listen(0, "127.0.0.1");
    await once(http, "listening");
    return new StandIn(http);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  end(): void {
    this.#http.close();
    this.#http.closeAllConnections();
  }
}

export async function bytes(stream: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
