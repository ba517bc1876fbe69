/** The client: one method for each thing that can be asked. */

import { randomUUID } from "node:crypto";

import { backoff, pause, steady } from "./clock.js";
import { LimitReached, Unavailable, Unfinished, Unreachable } from "./error.js";
import { Servers } from "./exchange.js";
import type { Ask, ServerOptions } from "./exchange.js";
import type {
  Page,
  Queue,
  QueueSpec,
  Run,
  RunOutput,
  RunSpec,
  RunState,
  Submitted,
  SubmittedBatch,
  WorkerDetails,
  WorkerInfo,
} from "./wire.js";

export interface ClientOptions extends ServerOptions {
  /** For how long a request is sent again that no server answers, or that none can take now; 30,000 if it is left out. */
  patienceMs?: number;
  /**
   * How many times a request is sent again at most; 0 for never. If it is left out, as often as there is time; one that meets
   * a limit, 4 times.
   */
  retries?: number;
  /** How long a server may take to answer; 30,000 if it is left out. */
  timeoutMs?: number;
  /** Where it is said that no server answers for a second, and is asked again. To stderr if it is left out. */
  log?: (sentence: string) => void;
}

export interface CallOptions {
  /** Ends the call. What was asked for may have been done. */
  signal?: AbortSignal;
}

export interface SubmitOptions extends CallOptions {
  /**
   * Under one key a request is carried out once within a day, also if this process dies in between. The client
   * makes one up if it is left out, so what it sends again by itself is carried out once too.
   */
  idempotencyKey?: string;
}

export interface WaitOptions extends CallOptions {
  /** For how long; 60,000 if it is left out. */
  timeoutMs?: number;
}

export interface RunFilter {
  state?: RunState | readonly RunState[];
  kind?: "run" | "notification";
  from?: Date | string;
  to?: Date | string;
  queue?: string;
  /** Without `queue`, only runs that have ended have keys and labels here. */
  key?: string;
  labels?: Readonly<Record<string, string>>;
  /** How many to ask for at a time, up to 500. */
  pageSize?: number;
}

export interface QueueRunFilter {
  state?: RunState | readonly RunState[];
  key?: string;
  labels?: Readonly<Record<string, string>>;
  pageSize?: number;
}

/** No pause between two attempts grows longer than this by itself: a server that is started again is asked soon. */
const PAUSE_MS_MAX = 2_000;

const QUIET_MS = 1_000;
const LIMIT_RETRIES = 4;

/** The pauses between two looks at a run. */
const LOOK_MS = 20;
const LOOK_MS_MAX = 1_000;

/**
 * A client of one cluster.
 *
 * A request is sent again when nobody answers, when the server is not available (502, 503, 504) and when a limit passes
 * by itself (429 that says when), for `patienceMs`. Nothing is done twice by that: each POST has an idempotency key.
 */
export class Client {
  readonly #servers: Servers;
  readonly #patienceMs: number;
  readonly #retries: number | undefined;
  readonly #timeoutMs: number;
  readonly #log: (sentence: string) => void;

  constructor(options: ClientOptions = {}) {
    this.#servers = new Servers(options);
    this.#patienceMs = options.patienceMs ?? 30_000;
    this.#retries = options.retries;
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#log = options.log ?? ((sentence) => console.error(`watchbell: ${sentence}`));
  }

  /** Lets a queue have a run. When this returns, the run is durable. */
  submit(run: RunSpec & { queue: string }, options: SubmitOptions = {}): Promise<Submitted> {
    return this.#post("/v1/runs", run, options);
  }

  /** Lets a queue have up to 1,000 runs, all or none; one answer for each, in their order. */
  async submitMany(queue: string, runs: readonly RunSpec[], options: SubmitOptions = {}): Promise<Submitted[]> {
    const batch = await this.#post<SubmittedBatch>("/v1/runs/batch", { queue, runs }, options);
    return batch.runs;
  }

  /** A run, with its attempts, and why it waits. */
  run(id: string, options: CallOptions = {}): Promise<Run> {
    return this.#get(`/v1/runs/${part(id)}`, options);
  }

  /**
   * A run when it has ended: it is looked at again and again, also while no server answers. `Unfinished` if it has not ended in
   * time.
   */
  async wait(id: string, options: WaitOptions = {}): Promise<Run> {
    const { timeoutMs = 60_000, signal } = options;
    const until = steady() + timeoutMs;
    for (let waitMs = LOOK_MS; ; waitMs = Math.min(waitMs * 1.5, LOOK_MS_MAX)) {
      let found: string;
      let cause: unknown;
      try {
        const run = await this.#call<Run>({ method: "GET", path: `/v1/runs/${part(id)}` }, options, until);
        if (!isUnfinished(run.state)) return run;
        found = `is ${run.state}`;
      } catch (error) {
        if (wishMs(error, this.#servers.count) === undefined) throw error;
        found = `is not known to have ended (${(error as Error).message})`;
        cause = error;
      }
      if (steady() + waitMs > until) throw new Unfinished(`${id} ${found} after ${timeoutMs} ms`, undefined, { cause });
      await pause(waitMs, signal);
    }
  }

  /**
   * The latest runs of all triggers and queues, newest first, page after page. With `queue`, first those of it that have not
   * ended, in the order in which they came, and then those that have; one that ends meanwhile comes once. Queues have no filter
   * by time: with `from` and `to` all unfinished runs of the queue are fetched, and looked through here.
   */
  async *runs(filter: RunFilter = {}, options: CallOptions = {}): AsyncIterableIterator<Run> {
    const { pageSize, labels, state, ...rest } = filter;
    const { queue, key, kind } = rest;
    const states = typeof state === "string" ? [state] : (state ?? []);
    const ended = queue === undefined ? states : states.filter((one) => !isUnfinished(one));
    const unfinished = states.filter(isUnfinished);
    const common = { label: labelTexts(labels), limit: pageSize };
    const given = new Set<string>();
    if (queue !== undefined && kind !== "notification" && (unfinished.length > 0 || states.length === 0)) {
      const query = { ...common, key, state: unfinished };
      for await (const run of this.#pages<Run>(`/v1/queues/${part(queue)}/runs`, query, options)) {
        if (!isBetween(run.slot, filter)) continue;
        given.add(run.id);
        yield run;
      }
    }
    if (ended.length > 0 || states.length === 0) {
      for await (const run of this.#pages<Run>("/v1/runs", { ...rest, ...common, state: ended }, options)) {
        if (!given.has(run.id)) yield run;
      }
    }
  }

  /** The unfinished runs of a queue, in the order in which they came. */
  queueRuns(queue: string, filter: QueueRunFilter = {}, options: CallOptions = {}): AsyncIterableIterator<Run> {
    const { pageSize, labels, ...rest } = filter;
    const query = { ...rest, label: labelTexts(labels), limit: pageSize };
    return this.#pages(`/v1/queues/${part(queue)}/runs`, query, options);
  }

  /** Ends a run: at once if it waits, by its worker if one has it. `NotFound` if it has ended. */
  async cancel(id: string, options: CallOptions = {}): Promise<void> {
    await this.#post(`/v1/runs/${part(id)}/cancel`, undefined, options);
  }

  /** What a run printed in its last attempt, as far as it is kept. */
  output(id: string, options: CallOptions = {}): Promise<RunOutput> {
    return this.#get(`/v1/runs/${part(id)}/output`, options);
  }

  /** Lets a dead run wait again, as a new run. */
  retry(id: string, options: SubmitOptions = {}): Promise<Submitted> {
    return this.#post(`/v1/runs/${part(id)}/retry`, undefined, options);
  }

  /** A queue, how it stands, and why its runs wait. */
  queue(name: string, options: CallOptions = {}): Promise<Queue> {
    return this.#get(`/v1/queues/${part(name)}`, options);
  }

  /** All queues, by name. */
  queues(filter: { prefix?: string; pageSize?: number } = {}, options: CallOptions = {}): AsyncIterableIterator<Queue> {
    return this.#pages("/v1/queues", { prefix: filter.prefix, limit: filter.pageSize }, options);
  }

  /**
   * Gives a queue these limits, and makes it if it is not there. What is left out is not limited any more. With
   * `revision`, only if nobody changed it since: `Conflict` otherwise.
   */
  setQueue(name: string, spec: QueueSpec, options: CallOptions & { revision?: number } = {}): Promise<Queue> {
    const headers: Record<string, string> =
      options.revision === undefined ? {} : { "if-match": `"${options.revision}"` };
    return this.#call({ method: "PUT", path: `/v1/queues/${part(name)}`, body: spec, headers }, options);
  }

  /** Lets no worker have runs of a queue; what executes goes on. `Conflict` if it is so already. */
  pauseQueue(
    name: string,
    options: CallOptions & { note?: string; until?: Date | string } = {},
  ): Promise<Queue> {
    const { note, until } = options;
    const body = { note, until: until === undefined ? undefined : instant(until) };
    return this.#post(`/v1/queues/${part(name)}/pause`, body, options);
  }

  /** Lets workers have its runs again. `Conflict` if it is so already. */
  resumeQueue(name: string, options: CallOptions = {}): Promise<Queue> {
    return this.#post(`/v1/queues/${part(name)}/resume`, undefined, options);
  }

  /** The workers that were heard of, by name. */
  workers(options: CallOptions = {}): AsyncIterableIterator<WorkerInfo> {
    return this.#pages("/v1/workers", {}, options);
  }

  /** A worker, and the runs that it has. */
  worker(name: string, options: CallOptions = {}): Promise<WorkerDetails> {
    return this.#get(`/v1/workers/${part(name)}`, options);
  }

  /** Gives a worker nothing more, and tells it to finish what it has and end. `Conflict` if it is so already. */
  drain(worker: string, options: CallOptions = {}): Promise<WorkerDetails> {
    return this.#post(`/v1/workers/${part(worker)}/drain`, undefined, options);
  }

  #get<T>(path: string, options: CallOptions): Promise<T> {
    return this.#call({ method: "GET", path }, options);
  }

  #post<T>(path: string, body: unknown, options: SubmitOptions): Promise<T> {
    const headers = { "idempotency-key": options.idempotencyKey ?? randomUUID() };
    return this.#call({ method: "POST", path, body, headers }, options);
  }

  async *#pages<T>(path: string, query: Query, options: CallOptions): AsyncIterableIterator<T> {
    let cursor: string | undefined;
    do {
      const page: Page<T> = await this.#get(path + queryText({ ...query, cursor }), options);
      yield* page.items;
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
  }

  /** Sends a request, and again where that is safe and of use; not after `until`. */
  async #call<T>(ask: Omit<Ask, "timeoutMs">, options: CallOptions, until?: number): Promise<T> {
    const first = steady();
    const last = Math.min(first + this.#patienceMs, until ?? Number.POSITIVE_INFINITY);
    let isSaid = false;
    let limited = 0;
    // Whether an attempt counted cannot be told by its revision afterwards.
    const isOnce = ask.headers?.["if-match"] !== undefined;
    for (let tried = 1; ; tried += 1) {
      const url = this.#servers.url;
      try {
        const left = Math.max(1_000, (until ?? Number.POSITIVE_INFINITY) - steady());
        const timeoutMs = Math.min(this.#timeoutMs, left);
        return await this.#servers.ask<T>({ ...ask, timeoutMs, signal: options.signal });
      } catch (error) {
        const wish = wishMs(error, this.#servers.count);
        if (error instanceof LimitReached) limited += 1;
        const counted = this.#retries === undefined ? limited : tried;
        if (wish === undefined || counted > (this.#retries ?? LIMIT_RETRIES)) {
          throw error;
        }
        if (isOnce && (error as Unreachable | Unavailable).mayBeDone) {
          throw error;
        }
        this.#servers.leave(url);
        // The others are asked at once: it may be this one alone that is gone.
        const isRound = tried % this.#servers.count === 0;
        const round = Math.ceil(tried / this.#servers.count);
        const wait = isRound ? wish + backoff(round, PAUSE_MS_MAX) : 0;
        if (steady() + wait > last) {
          throw error;
        }
        if (!isSaid && steady() - first >= QUIET_MS) {
          isSaid = true;
          const seconds = Math.round((last - steady()) / 1_000);
          this.#log(`${(error as Error).message}; it is asked again for up to ${seconds} s`);
        }
        await pause(wait, options.signal);
      }
    }
  }
}

/** How long the server wishes that we wait; nothing, if sending it again is of no use. */
function wishMs(error: unknown, servers: number): number | undefined {
  if (error instanceof Unreachable) {
    return 0;
  }
  if (error instanceof LimitReached) {
    return error.retryAfter;
  }
  if (error instanceof Unavailable) {
    const isPassing = error.status === 502 || error.status === 503 || error.status === 504;
    return isPassing || (error.status === 421 && servers > 1) ? (error.retryAfter ?? 0) : undefined;
  }
  return undefined;
}

/** Queues tell of these, and of no others. */
function isUnfinished(state: RunState): boolean {
  return state === "waiting" || state === "blocked" || state === "backoff" || state === "running";
}

/** What servers do for runs that have ended: queues have no such filter. */
function isBetween(slot: string, { from, to }: RunFilter): boolean {
  const at = Date.parse(slot);
  const isEarly = from !== undefined && at < new Date(from).getTime();
  const isLate = to !== undefined && at >= new Date(to).getTime();
  return !isEarly && !isLate;
}

type Query = Record<string, string | number | Date | readonly string[] | undefined>;

function queryText(query: Query): string {
  const texts = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || (Array.isArray(value) && value.length === 0)) continue;
    if (value instanceof Date) texts.append(name, instant(value));
    else texts.append(name, typeof value === "object" ? value.join(",") : String(value));
  }
  const text = texts.toString();
  return text === "" ? "" : `?${text}`;
}

function labelTexts(labels: Readonly<Record<string, string>> | undefined): string[] | undefined {
  return labels === undefined ? undefined : Object.entries(labels).map(([name, value]) => `${name}=${value}`);
}

function instant(at: Date | string): string {
  return typeof at === "string" ? at : at.toISOString();
}

function part(name: string): string {
  return encodeURIComponent(name);
}
