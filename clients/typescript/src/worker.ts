/**
 * The worker: calls handlers for runs, and speaks with servers by itself.
 *
 * A claim is open whenever there is room. Beats go beside it, or without it where there is no room, so that the worker is
 * heard while handlers execute. The rules are those of `ledger`; here are the effects.
 */

import { hostname } from "node:os";

import { after, backoff, steady, wall, wallMicros } from "./clock.js";
import type { Timer } from "./clock.js";
import {
  Cancelled,
  Conflict,
  DoNotRetry,
  LimitReached,
  Lost,
  NotFound,
  Refused,
  RetryAfter,
  Stopped,
  Superseded,
  TimedOut,
  Unauthorized,
  Unavailable,
  Unconfirmed,
  Unreachable,
} from "./error.js";
import { Servers } from "./exchange.js";
import type { ServerOptions } from "./exchange.js";
import { EndOrder } from "./order.js";
import { BadToken, CAPACITY_MAX, Ledger } from "./ledger.js";
import type { Said } from "./ledger.js";
import { Printer, clean } from "./print.js";
import type { Stream } from "./print.js";
import type { BeatRequest, ClaimAnswer, ClaimRequest, ClaimedRun, DoneRun } from "./wire.js";

export interface WorkerOptions extends ServerOptions {
  /** From which queues, the first before the second: up to 32. */
  queues: readonly string[];
  /** No other process of the project has this name; the host and the process id if it is left out. */
  name?: string;
  /** How many handlers execute at a time, up to 1,000; 10 if it is left out. */
  capacity?: number;
  /** How long the worker may be silent before its runs are given to others, from 1,000; 15,000 if it is left out. */
  leaseMs?: number;
  /** How long a handler may take to end that timed out, or is stopped, before its run is reported anyway; 5,000. */
  graceMs?: number;
  /** Words by which people tell workers apart, such as `{ zone: "b" }`: up to 16, shown by `watchbell worker list`. */
  labels?: Readonly<Record<string, string>>;
  /** Where sentences for people go: that no server answers, and that one does again. To stderr if it is left out. */
  log?: (sentence: string) => void;
}

/** What a handler is told, and what it can say. */
export interface Context {
  /** The same in every attempt: a good idempotency key. */
  readonly runId: string;
  /** Attempt number, from 1. */
  readonly attempt: number;
  /** Greater in every attempt: what is acted upon can refuse a smaller one. */
  readonly token: number;
  readonly queue: string;
  /** When the run was submitted, or the slot of its trigger. */
  readonly scheduled: Date;
  /** The name of its trigger, if it has one. */
  readonly trigger: string | undefined;
  /** When the attempt has to be over, if its run says so. */
  readonly deadline: Date | undefined;
  /**
   * Aborts when the run is to end early; `reason` is `Cancelled`, `TimedOut`, `Stopped`, `Unconfirmed` or `Lost`. Pass it
   * on, or call `throwIfAborted` now and then. A handler that has seen that and ends has ended early, whether it returns or
   * throws; one that never looked is reported as what came of it.
   */
  readonly signal: AbortSignal;
  /** Says how far the run has come: 0 to 100, and up to 200 characters. */
  progress(percent: number | undefined, text?: string): void;
  /** Prints for the run: shown by `watchbell run output`, which adds no line ends. The last 64 KiB are kept. */
  output(data: string | Uint8Array, stream?: Stream): void;
}

/** Carries a run out. Returning is success; throwing is failure, to be tried again as the run says. */
export type Handler<T> = (context: Context, payload: T) => unknown;

export interface HandlerOptions<T> {
  /** Makes of a payload what the handler takes, or throws: then the run fails for good. Without it nobody checks. */
  payload?: (value: unknown) => T;
}

export interface RunOptions {
  /** Which signals drain it; SIGTERM and SIGINT if it is left out. */
  signals?: readonly string[];
  /** Handlers that execute for longer after the first signal are ended by theirs, and their runs given to others; never, if left out. */
  stopAfterMs?: number;
}

export interface DrainOptions {
  /** Handlers that execute for longer are ended by their signal, and their runs given to others; never, if left out. */
  stopAfterMs?: number;
}

/** How long a server may take beside what it is asked to wait. */
const ANSWER_MS = 5_000;
const PAUSE_MS_MAX = 5_000;
/** One quick answer is usual: it brings a cookie. */
const QUICK_ANSWERS_MAX = 2;
const QUICK_PAUSE_MS_MAX = 1_000;
const ERROR_CHARS_MAX = 1_000;
const RETRY_AFTER_MS_MAX = 3_600_000;

/** A handler that executes. */
interface Execution {
  readonly run: ClaimedRun;
  readonly order: EndOrder;
  readonly printer: Printer;
  readonly started: Date;
  readonly startedAt: number;
  timer: Timer | undefined;
  isReported: boolean;
}

export class Worker {
  readonly name: string;
  readonly #servers: Servers;
  readonly #handlers = new Map<string, { handler: Handler<never>; payload: (value: unknown) => unknown }>();
  readonly #executions = new Set<Execution>();
  readonly #ledger: Ledger;
  readonly #graceMs: number;
  readonly #log: (sentence: string) => void;
  #wake: Timer | undefined;
  #isWakeSoon = false;
  #claim: { ender: AbortController; said: Said<ClaimRequest>; doesWait: boolean } | undefined;
  #isBeating = false;
  #pausedUntil = 0;
  #failures = 0;
  #emptyAnswers = 0;
  /** Claims that were to wait and were answered at once, one after the other; and when the next one may be sent. */
  #quickAnswers = 0;
  #claimsFrom = 0;
  #hasBeenHeard = false;
  #isAway = false;
  #hasSaidDraining = false;
  #stopTimer: Timer | undefined;
  #stopAt = Number.POSITIVE_INFINITY;
  #giveUpTimer: Timer | undefined;
  #strictTimer: Timer | undefined;
  #isStopping = false;
  #ending: { resolve: () => void; reject: (error: unknown) => void } | undefined;
  #ended: Promise<void> | undefined;

  constructor(options: WorkerOptions) {
    const { capacity = 10, leaseMs = 15_000, queues } = options;
    if (!Array.isArray(queues) || queues.length === 0 || queues.some((queue) => typeof queue !== "string")) {
      throw new TypeError('queues is a list of the names of queues, such as ["mail"]');
    }
    check("capacity", capacity, 1, CAPACITY_MAX);
    check("leaseMs", leaseMs, 1_000, 86_400_000);
    this.name = options.name ?? ownName();
    this.#servers = new Servers(options);
    this.#graceMs = options.graceMs ?? 5_000;
    this.#log = options.log ?? ((sentence) => console.error(`watchbell: ${sentence}`));
    const labels = options.labels ?? {};
    this.#ledger = new Ledger({ worker: this.name, queues, capacity, leaseMs, labels, incarnation: wallMicros() });
  }

  /** Calls this for runs of that handler. `T` is what its payload is taken for: nobody checks it, unless `payload` does. A name has one handler. */
  handle<T = unknown>(name: string, handler: Handler<T>, options: HandlerOptions<T> = {}): this {
    if (this.#handlers.has(name)) {
      throw new TypeError(`there is a handler ${JSON.stringify(name)} already: give this one another name`);
    }
    const payload = options.payload ?? ((value: unknown) => value);
    this.#handlers.set(name, { handler: handler as Handler<never>, payload });
    return this;
  }

  /**
   * Carries out runs until the worker is drained: by `drain`, by one of these signals, or by `watchbell worker drain`.
   * A second signal ends handlers early. A third one ends the worker at once: what no server has acknowledged is lost.
   *
   * Throws what servers say if they refuse the worker from the start, `Superseded` if a later process took its name, and
   * `Unreachable` if handlers were ended early, or the worker at once, and no server took their results.
   */
  async run(options: RunOptions = {}): Promise<void> {
    if (this.#ended !== undefined) throw new Error("a worker runs once: make another one");
    if (this.#handlers.size === 0) {
      throw new TypeError('the worker has no handler, and each run would fail: call handle("name", ...) before run()');
    }
    const ended = new Promise<void>((resolve, reject) => {
      this.#ending = { resolve, reject };
    });
    this.#ended = ended;
    const { signals = ["SIGTERM", "SIGINT"], stopAfterMs } = options;
    // Counted by themselves: the worker may drain already, as a server has asked for that.
    let count = 0;
    const onSignal = (): void => {
      count += 1;
      this.#beginDrain();
      if (count === 1) this.#stopAfter(stopAfterMs);
      else if (count === 2) this.#stopAfter(0);
      else this.#giveUp();
    };
    for (const signal of signals) process.on(signal, onSignal);
    this.#pump();
    try {
      await ended;
    } finally {
      for (const signal of signals) process.off(signal, onSignal);
    }
  }

  /**
   * Takes no more runs, waits for handlers, reports what came of them, and returns when the worker has ended. How it ended
   * `run` says. Of several calls the one counts that ends handlers soonest.
   */
  async drain(options: DrainOptions = {}): Promise<void> {
    this.#beginDrain();
    this.#stopAfter(options.stopAfterMs);
    await this.#ended?.catch(() => undefined);
  }

  #stopAfter(ms: number | undefined): void {
    if (ms === undefined || this.#ending === undefined) return;
    const at = steady() + ms;
    if (at >= this.#stopAt) return;
    this.#stopAt = at;
    this.#stopTimer?.stop();
    this.#stopTimer = after(ms, () => this.#stop());
  }

  #beginDrain(): void {
    if (this.#ledger.isDraining) return;
    this.#ledger.drain();
    if (this.#claim !== undefined) {
      // Whatever it would have been given never began, and waits again.
      this.#ledger.settle(this.#claim.said.number);
      this.#claim.ender.abort();
      this.#claim = undefined;
    }
    this.#pump();
  }

  /** Ends handlers early; gives up if nobody acknowledges what came of them. */
  #stop(): void {
    if (this.#isStopping || this.#ending === undefined) return;
    this.#isStopping = true;
    for (const execution of this.#executions) this.#abort(execution, new Stopped("the worker stops"));
    this.#giveUpTimer = after(this.#graceMs + ANSWER_MS, () => this.#giveUp());
  }

  /** Ends without what servers have not acknowledged: runs that execute, and results. */
  #giveUp(): void {
    const executing = [...this.#executions].filter((execution) => !execution.isReported);
    const count = executing.length + this.#ledger.unacknowledged;
    if (count === 0) return this.#finish();
    this.#finish(new Unreachable(`no server acknowledged the results of ${count} runs: they are lost`, false));
  }

  /** Looks what there is to do: begins runs, and says what has to be said. */
  #pump(): void {
    if (this.#ending === undefined) return;
    this.#wake?.stop();
    this.#wake = undefined;
    const now = steady();
    for (const run of this.#ledger.begin(now)) this.#begin(run);
    this.#endUnconfirmed(now);
    if (this.#isBeating) return;
    if (now < this.#pausedUntil) return this.#wakeAt(this.#pausedUntil);
    const { beatDue, repeatDue } = this.#ledger;
    // A claim that reports is answered at once, and what has ended meanwhile goes with the next one.
    const doesReport = this.#claim !== undefined && !this.#claim.doesWait;
    const due = doesReport ? beatDue : Math.min(beatDue, repeatDue);
    const isTime = now >= due || this.#ledger.hasNews(now);
    const isFree = this.#ledger.free(now) > 0;
    if (this.#ledger.isDraining) {
      if (this.#ledger.isEmpty && this.#hasSaidDraining) return this.#finish();
      if (isTime || !this.#hasSaidDraining) void this.#sendBeat();
      else this.#wakeAt(due);
    } else if (this.#claim !== undefined) {
      if (doesReport ? now >= due : isTime) void this.#sendBeat();
      else this.#wakeAt(due);
    } else if (isFree && now >= this.#claimsFrom) {
      void this.#sendClaim();
      // A claim that waits is answered for no cancel: beats go beside it.
      this.#wakeAt(Math.min(this.#ledger.beatDue, this.#ledger.repeatDue));
    } else if (isTime) {
      void this.#sendBeat();
    } else {
      this.#wakeAt(isFree ? Math.min(due, this.#claimsFrom) : due);
    }
  }

  /** Ends runs of queues with a strict lease that are confirmed no more, and looks again when the next one may be. */
  #endUnconfirmed(now: number): void {
    this.#strictTimer?.stop();
    this.#strictTimer = undefined;
    let soonest = Number.POSITIVE_INFINITY;
    for (const execution of this.#executions) {
      const { run, order } = execution;
      if (run.strict !== true || order.reason !== undefined) continue;
      const until = this.#ledger.confirmedUntil(run);
      if (until === undefined) continue;
      if (until > now) soonest = Math.min(soonest, until);
      else this.#abort(execution, new Unconfirmed("no server was heard for the lease, which is strict"));
    }
    if (soonest < Number.POSITIVE_INFINITY) {
      this.#strictTimer = after(soonest - now, () => this.#endUnconfirmed(steady()));
    }
  }

  /** Looks again when all that is ready now has been done: what ends together is reported together. */
  #pumpSoon(): void {
    if (this.#isWakeSoon) return;
    this.#isWakeSoon = true;
    setImmediate(() => {
      this.#isWakeSoon = false;
      this.#pump();
    });
  }

  #wakeAt(at: number): void {
    if (at === Number.POSITIVE_INFINITY) return;
    this.#wake = after(at - steady(), () => this.#pump());
  }

  async #sendClaim(): Promise<void> {
    const said = this.#ledger.claim(steady());
    const waitMs = said.body.wait_ms ?? 0;
    const claim = { ender: new AbortController(), said, doesWait: waitMs > 0 };
    this.#claim = claim;
    const url = this.#servers.url;
    try {
      const answer = await this.#servers.ask<ClaimAnswer>({
        method: "POST",
        path: "/v1/claim",
        body: said.body,
        timeoutMs: waitMs + ANSWER_MS,
        signal: claim.ender.signal,
      });
      if (this.#claim !== claim) return;
      this.#claim = undefined;
      const isNews = this.#take(said, answer);
      this.#pace(!isNews && steady() - said.sent < waitMs / 2);
    } catch (error) {
      if (this.#claim !== claim) return;
      this.#claim = undefined;
      this.#ledger.fail(said);
      this.#failed(error, url);
    }
    this.#pumpSoon();
  }

  async #sendBeat(): Promise<void> {
    this.#isBeating = true;
    const said: Said<BeatRequest> = this.#ledger.beat(steady());
    const url = this.#servers.url;
    try {
      const answer = await this.#servers.ask<ClaimAnswer>({
        method: "POST",
        path: `/v1/workers/${encodeURIComponent(this.name)}/beat`,
        body: said.body,
        timeoutMs: Math.max(1_000, Math.min(2 * this.#ledger.beatMs, 2 * ANSWER_MS)),
      });
      this.#isBeating = false;
      this.#hasSaidDraining ||= said.body.draining === true;
      this.#take(said, answer);
    } catch (error) {
      this.#isBeating = false;
      this.#ledger.fail(said);
      // Without runs there is nobody to tell that the worker leaves, if that cannot be told.
      this.#hasSaidDraining ||= this.#ledger.isDraining && this.#ledger.isEmpty;
      this.#failed(error, url);
    }
    this.#pumpSoon();
  }

  /** A server that answers at once, and with nothing, what was to wait is not asked without a pause. */
  #pace(isQuick: boolean): void {
    this.#quickAnswers = isQuick ? this.#quickAnswers + 1 : 0;
    if (this.#quickAnswers > QUICK_ANSWERS_MAX) {
      this.#claimsFrom = steady() + backoff(this.#quickAnswers - QUICK_ANSWERS_MAX, QUICK_PAUSE_MS_MAX);
    }
  }

  /** Does what an answer asks for; whether it said anything new. */
  #take(said: Said<unknown>, answer: ClaimAnswer): boolean {
    this.#heard();
    try {
      const orders = this.#ledger.take(said, answer, steady());
      for (const execution of this.#executions) {
        const is = (one: { id: string; token: number }): boolean =>
          one.id === execution.run.id && one.token === execution.run.token;
        if (orders.lost.some(is)) this.#abort(execution, new Lost("the run was given to another, or has ended"));
        if (orders.cancel.some(is)) this.#abort(execution, new Cancelled("somebody has cancelled the run"));
      }
      if (orders.isDrain && !this.#ledger.isDraining) {
        this.#log("somebody wants this worker to drain");
        this.#beginDrain();
      }
      // A server that has nothing to say and does not wait, such as one that cannot reach a run's owner.
      const isIdle = !orders.isNews && orders.isOpen;
      this.#emptyAnswers = isIdle ? this.#emptyAnswers + 1 : 0;
      // What executes is heard of in time all the same.
      if (isIdle) {
        const pausedUntil = steady() + backoff(this.#emptyAnswers, this.#ledger.beatMs);
        this.#pausedUntil = Math.min(pausedUntil, this.#ledger.beatDue);
      }
      return orders.isNews;
    } catch (error) {
      if (!(error instanceof BadToken)) throw error;
      this.#finish(error);
      return false;
    }
  }

  #heard(): void {
    this.#hasBeenHeard = true;
    this.#failures = 0;
    if (this.#isAway) this.#log(`${this.#servers.url} answers again`);
    this.#isAway = false;
  }

  /** A request came to nothing: the next one says how things stand by then. */
  #failed(error: unknown, url: string): void {
    if (error instanceof Conflict) {
      if (error.kind === "old-incarnation") {
        const why = "is another process using the name, or was the clock set back?";
        return this.#finish(new Superseded(`a later life of the worker ${this.name} was heard; ${why}`, error.problem));
      }
      // A newer claim of our own came first; the next one is newer still.
      this.#pausedUntil = steady() + backoff(1, PAUSE_MS_MAX);
      return;
    }
    const isRefused = error instanceof Refused || error instanceof Unauthorized || error instanceof NotFound;
    if (isRefused && !this.#hasBeenHeard) return this.#finish(error);
    this.#failures += 1;
    const wished = error instanceof Unavailable || error instanceof LimitReached ? (error.retryAfter ?? 0) : 0;
    // A server, or what is before it, may wish for an hour. Half a lease for who has no runs; others have to be heard.
    const wish = Math.min(wished, this.#ledger.beatMs * (this.#ledger.isEmpty ? 2.5 : 0.5));
    const round = Math.ceil(this.#failures / this.#servers.count);
    const isRound = this.#failures % this.#servers.count === 0;
    const most = Math.min(PAUSE_MS_MAX, this.#ledger.beatMs);
    this.#pausedUntil = steady() + (isRound ? wish + backoff(round, most) : 0);
    this.#servers.leave(url);
    // An answer that is lost now and then is nothing to be told of.
    if (isRound && round > 1 && !this.#isAway) {
      this.#isAway = true;
      this.#log(`${(error as Error).message}; what executes goes on, and results are kept`);
    }
  }

  #finish(error?: unknown): void {
    const ending = this.#ending;
    if (ending === undefined) return;
    this.#ending = undefined;
    this.#wake?.stop();
    this.#stopTimer?.stop();
    this.#giveUpTimer?.stop();
    this.#strictTimer?.stop();
    this.#claim?.ender.abort();
    this.#claim = undefined;
    for (const execution of this.#executions) this.#abort(execution, new Lost("the worker has ended"));
    if (error === undefined) ending.resolve();
    else ending.reject(error);
  }

  #begin(run: ClaimedRun): void {
    const started = wall();
    const execution: Execution = {
      run,
      order: new EndOrder(),
      printer: new Printer(run.token, (request) =>
        this.#servers.ask({
          method: "POST",
          path: `/v1/runs/${encodeURIComponent(run.id)}/output`,
          body: request,
          timeoutMs: ANSWER_MS,
        }),
      ),
      started,
      startedAt: steady(),
      timer: undefined,
      isReported: false,
    };
    this.#executions.add(execution);
    const timeoutMs = run.timeout_ms ?? undefined;
    if (timeoutMs !== undefined) {
      execution.timer = after(timeoutMs, () =>
        this.#abort(execution, new TimedOut(`it took longer than its timeout of ${timeoutMs} ms`)),
      );
    }
    void this.#execute(execution, timeoutMs).finally(() => {
      execution.timer?.stop();
      this.#executions.delete(execution);
      this.#ledger.end(run.id);
      this.#pumpSoon();
    });
  }

  async #execute(execution: Execution, timeoutMs: number | undefined): Promise<void> {
    const { run, printer, started } = execution;
    const context: Context = {
      runId: run.id,
      attempt: run.attempt,
      token: run.token,
      queue: run.queue,
      scheduled: new Date(run.scheduled),
      trigger: run.trigger ?? undefined,
      deadline: timeoutMs === undefined ? undefined : new Date(started.getTime() + timeoutMs),
      get signal() {
        return execution.order.signal;
      },
      progress: (percent, text) => printer.progress(percent, text),
      output: (data, stream = "stdout") => printer.print(data, stream),
    };
    try {
      const known = this.#handlers.get(run.handler ?? "");
      if (known === undefined) throw new DoNotRetry(this.#unknown(run));
      await known.handler(context, fitting(known.payload, run.payload) as never);
      await this.#report(execution, outcome(execution));
    } catch (error) {
      await this.#report(execution, outcome(execution, { error }));
    }
  }

  #unknown(run: ClaimedRun): string {
    if (run.handler == null) return `the worker ${this.name} calls handlers, and carries out no commands`;
    return `the worker ${this.name} has no handler ${JSON.stringify(run.handler)}`;
  }

  /** Ends a handler early, by its signal; once. If it does not end soon, its run is reported without it. */
  #abort(execution: Execution, reason: Error): void {
    if (reason instanceof Lost) {
      execution.isReported = true;
      execution.printer.drop();
    }
    if (!execution.order.give(reason)) return;
    execution.timer?.stop();
    execution.timer = undefined;
    if (reason instanceof TimedOut || reason instanceof Stopped) {
      execution.timer = after(this.#graceMs, () => {
        void this.#report(execution, outcome(execution, { error: reason }));
      });
    }
  }

  async #report(execution: Execution, result: Omit<DoneRun, "id" | "token">): Promise<void> {
    if (execution.isReported) return;
    execution.isReported = true;
    await execution.printer.close();
    const { run, started, startedAt } = execution;
    const took_ms = Math.round(steady() - startedAt);
    this.#ledger.report({ id: run.id, token: run.token, ...result, started: started.toISOString(), took_ms });
    this.#pumpSoon();
  }
}

/** The payload as its handler takes it. */
function fitting(payload: (value: unknown) => unknown, value: unknown): unknown {
  try {
    return payload(value);
  } catch (error) {
    throw new DoNotRetry(`the payload does not fit: ${errorText(error)}`);
  }
}

/** What came of a handler that returned, or threw. */
function outcome(execution: Execution, thrown?: { error: unknown }): Omit<DoneRun, "id" | "token"> {
  const { reason } = execution.order;
  // However it ended: its time was over.
  if (reason instanceof TimedOut) return { result: "failed", error: reason.message };
  if (reason !== undefined && (execution.order.isSeen || (thrown && execution.order.isThrown(thrown.error)))) {
    return { result: reason instanceof Cancelled ? "cancelled" : "stopped" };
  }
  if (thrown === undefined) return { result: "succeeded" };
  const { error } = thrown;
  const failed = { result: "failed" as const, error: errorText(error) };
  if (error instanceof DoNotRetry) return { ...failed, final_failure: true };
  if (error instanceof RetryAfter && Number.isFinite(error.ms)) {
    return { ...failed, retry_after_ms: Math.round(Math.min(RETRY_AFTER_MS_MAX, Math.max(0, error.ms))) };
  }
  return failed;
}

function errorText(error: unknown): string {
  let text: string;
  try {
    // A message is what its error was given, also if that is no text.
    text = String(error instanceof Error ? error.message || error.name : error);
  } catch {
    text = "something was thrown that cannot be shown";
  }
  return clean(text, ERROR_CHARS_MAX);
}

function check(what: string, value: number, least: number, most: number): void {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new RangeError(`${what} is ${value}; whole numbers from ${least} to ${most} are allowed`);
  }
}

/** Names have letters, digits, `.`, `_` and `-`, 100 at most. */
function ownName(): string {
  return `${hostname().replace(/[^A-Za-z0-9._-]/g, "-").slice(0, 80)}-${process.pid}`;
}
