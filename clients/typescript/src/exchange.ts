/** One request and its answer; and which of several servers is asked. */

import { readFileSync } from "node:fs";

import { after } from "./clock.js";
import { Unreachable, ofProblem } from "./error.js";
import type { Problem } from "./wire.js";

/** Whom to ask, and as whom. */
export interface ServerOptions {
  /** URLs, as a list or with commas between; WATCHBELL_SERVER or http://127.0.0.1:7400 if it is left out. */
  servers?: string | readonly string[];
  /** WATCHBELL_KEY, or what is in the file that WATCHBELL_KEY_FILE names, if it is left out. `watchbell dev` needs none. */
  key?: string | undefined;
  /** For admins: which project it is about. */
  project?: string | undefined;
}

export interface Ask {
  method: "GET" | "POST" | "PUT" | "DELETE";
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

/** Servers of one cluster: any of them answers any request, so one is asked until it fails. */
export class Servers {
  readonly #urls: string[];
  readonly #headers: Record<string, string>;
  #current: number;

  constructor(options: ServerOptions) {
    const named = options.servers ?? (process.env["WATCHBELL_SERVER"] || "http://127.0.0.1:7400");
    const texts = typeof named === "string" ? named.split(",") : named;
    this.#urls = texts.map((text) => text.trim()).filter((text) => text !== "").map(serverUrl);
    if (this.#urls.length === 0) {
      throw new TypeError("servers has no URL; try http://127.0.0.1:7400");
    }
    // Many clients that start together do not all ask the first one.
    this.#current = Math.floor(Math.random() * this.#urls.length);
    // Files end with a line end.
    const key = (options.key ?? keyOfEnvironment()).trim();
    if (!/^[!-~]*$/.test(key)) {
      // `fetch` would show it.
      throw new TypeError("the key cannot be used: it holds something else than letters, digits and signs");
    }
    this.#headers = {
      ...(key !== "" ? { authorization: `Bearer ${key}` } : {}),
      ...(options.project === undefined ? {} : { "watchbell-project": options.project }),
    };
  }

  get count(): number {
    return this.#urls.length;
  }

  /** The one that is asked next. */
  get url(): string {
    return this.#urls[this.#current] as string;
  }

  /** Sends a request once, and gives what the answer says; nothing, if it has no body. */
  async ask<T>(ask: Ask): Promise<T> {
    const url = this.url;
    // What JSON cannot say is the caller's error, and no server's.
    const body = ask.body === undefined ? {} : { body: JSON.stringify(ask.body) };
    const ender = new AbortController();
    const end = (): void => ender.abort(ask.signal?.reason);
    const timer = after(ask.timeoutMs, () => ender.abort(new Error(`no answer within ${ask.timeoutMs} ms`)));
    ask.signal?.addEventListener("abort", end, { once: true });
    try {
      ask.signal?.throwIfAborted();
      const response = await fetch(url + ask.path, {
        method: ask.method,
        headers: { ...this.#headers, ...contentType(ask.body), ...ask.headers },
        ...body,
        redirect: "error",
        signal: ender.signal,
      });
      const text = await response.text();
      if (response.ok) {
        return readJson<T>(text, url);
      }
      throw ofProblem(readProblem(text, response.status, url), retryAfter(response));
    } catch (error) {
      ask.signal?.throwIfAborted();
      if (!isTransport(error)) {
        throw error;
      }
      const why = reason(error);
      throw new Unreachable(`no server answers at ${url}: ${why.text}`, why.mayBeDone, { cause: error });
    } finally {
      timer.stop();
      ask.signal?.removeEventListener("abort", end);
    }
  }

  /** Asks another one from now on, unless somebody has seen to that already. */
  leave(url: string): void {
    if (url === this.url) {
      this.#current = (this.#current + 1) % this.#urls.length;
    }
  }
}

/** As for the command line. */
function keyOfEnvironment(): string {
  const key = process.env["WATCHBELL_KEY"] ?? "";
  const file = process.env["WATCHBELL_KEY_FILE"] ?? "";
  if (key !== "" && file !== "") {
    throw new TypeError("WATCHBELL_KEY and WATCHBELL_KEY_FILE are both set: which of them is meant?");
  }
  return file === "" ? key : readFileSync(file, "utf8");
}

function serverUrl(text: string): string {
  if (text.includes("@")) {
    // It is not shown: there may be a password in it.
    throw new TypeError("a server URL has no user or password in it; give a key");
  }
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError(`${JSON.stringify(text)} is no server URL; try http://127.0.0.1:7400`);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new TypeError(`${JSON.stringify(text)} is no server URL: it begins with http:// or https://`);
  }
  return (url.origin + url.pathname).replace(/\/+$/, "");
}

function contentType(body: unknown): Record<string, string> {
  return body === undefined ? {} : { "content-type": "application/json" };
}

function readJson<T>(text: string, url: string): T {
  if (text === "") {
    return undefined as T;
  }
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new Unreachable(`${url} gave an answer that is no JSON: is it a Watchbell server?`, true);
  }
}

function readProblem(text: string, status: number, url: string): Problem {
  try {
    const problem = JSON.parse(text) as Problem;
    if (typeof problem.type === "string" && typeof problem.detail === "string") {
      return { ...problem, status };
    }
  } catch {
    // Not a problem of ours: something before the server answered.
  }
  const detail = `${url} answered ${status}, without saying why`;
  return { type: "about:blank", title: detail, status, detail };
}

/** In milliseconds. Servers say seconds. */
function retryAfter(response: Response): number | undefined {
  const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  return Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : undefined;
}

/** Whether it is `fetch` that failed, or our own timer. */
function isTransport(error: unknown): boolean {
  return error instanceof Error && error.name !== "SyntaxError" && !("problem" in error);
}

/** With these nothing has left. */
const NEVER_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

function reason(error: unknown): { text: string; mayBeDone: boolean } {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : (error as Error);
  const code = (cause as NodeJS.ErrnoException).code;
  return { text: cause.message || code || cause.name, mayBeDone: code === undefined || !NEVER_SENT.has(code) };
}
