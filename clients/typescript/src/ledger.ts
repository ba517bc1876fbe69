/**
 * The rules of the worker protocol, without effects: what a worker has, what it says, and what follows from an answer.
 *
 * Time is an argument, and answers are data. docs/queues.md of the project tells the protocol; the rules kept here:
 *
 * - One claim is open at a time. Once it is answered, given up or refused it is settled, and an answer that comes later
 *   is not listened to.
 * - Each claim and beat names everything that the worker has: results until they are acknowledged, and all other runs,
 *   begun or not.
 * - A run begins only while it is confirmed: for the length of the lease from the sending of the request `as_of`.
 * - A newer token of a run whose handler still executes begins when that one has ended.
 */

import type { BeatRequest, ClaimAnswer, ClaimRequest, ClaimedRun, DoneRun, HeldRun } from "./wire.js";

/** Runs that a claim gives, and that a worker of one shard may have, at most. */
export const CAPACITY_MAX = 1_000;

/** How many runs one request names at most: the server takes 2,000. */
const NAMED_MAX = 1_800;

/** A request has at most 256 KiB; all the names take up to 150 KiB of that. */
const DONE_BYTES_MAX = 80_000;

const WAIT_MS_MAX = 30_000;

/** What its owner did not take is said again after a pause, which doubles. */
const REPEAT_MS = 100;
const REPEAT_MS_MAX = 2_000;

export interface LedgerOptions {
  worker: string;
  queues: readonly string[];
  capacity: number;
  leaseMs: number;
  incarnation: number;
  labels?: Readonly<Record<string, string>>;
}

/** A run that the worker has. */
interface Held {
  readonly run: ClaimedRun;
  /** Given, and not begun; executing; it has a result; it is given back. */
  state: "given" | "executing" | "done" | "released";
  /** It may begin until then. */
  confirmedUntil: number;
  isCancelled: boolean;
  result: DoneRun | undefined;
  /** Whether a request that is on its way tells the result, or that it is given back. */
  isTold: boolean;
  /** Its owner could not be asked: it is told again after the pause. Any other is told at once. */
  isPutOff: boolean;
}

/** A request, and what has to be known of it when its answer comes. */
export interface Said<T> {
  readonly body: T;
  readonly number: number;
  readonly sent: number;
  readonly named: readonly Held[];
  readonly told: readonly Held[];
}

/** What a request says of what the worker has. */
interface Split {
  told: Held[];
  named: Held[];
  putOff: Held[];
}

/** What follows from an answer. */
export interface Orders {
  /** Somebody has cancelled these: end them. */
  cancel: HeldRun[];
  /** These are somebody else's: end them, nothing of them counts. */
  lost: HeldRun[];
  /** Somebody wants the worker to drain. */
  isDrain: boolean;
  /** Whether the answer said anything new. */
  isNews: boolean;
  /** Whether something was named to be confirmed, and is to be so again. */
  isOpen: boolean;
}

export class Ledger {
  readonly #options: LedgerOptions;
  readonly #hasLabels: boolean;
  readonly #held = new Map<string, Held>();
  /** How many handlers execute, by run: also those whose run is lost, and those that ignore that their time is over. */
  readonly #executing = new Map<string, number>();
  #executingCount = 0;
  /** When each request was sent, as long as it can confirm something. */
  readonly #sent = new Map<number, number>();
  #number = 0;
  #settled = 0;
  #open: number | undefined;
  #cookie: string | undefined;
  #cookieNumber = 0;
  #lastSent = Number.NEGATIVE_INFINITY;
  #beatMs: number;
  #isDraining = false;
  /** All that is put off shares one pause, so that what ended one after the other does not come one after the other again. */
  #repeatFrom = Number.NEGATIVE_INFINITY;
  #repeatMs = REPEAT_MS;

  constructor(options: LedgerOptions) {
    this.#options = options;
    this.#hasLabels = Object.keys(options.labels ?? {}).length > 0;
    this.#beatMs = options.leaseMs / 5;
  }

  get beatMs(): number {
    return this.#beatMs;
  }

  /** How long a claim waits for a run. */
  get waitMs(): number {
    return Math.floor(Math.min(WAIT_MS_MAX, 2 * this.#beatMs));
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Nothing is left to execute or to report. */
  get isEmpty(): boolean {
    return this.#held.size === 0;
  }

  /** Results that no server has acknowledged. */
  get unacknowledged(): number {
    return [...this.#held.values()].filter((held) => held.state === "done").length;
  }

  /** Something is to be told at once: a result, a run given back, or one that waits to be confirmed. */
  hasNews(now: number): boolean {
    for (const held of this.#held.values()) {
      if (this.#isDue(held, now) && !held.isTold) return true;
      if (held.state === "given" && held.confirmedUntil <= now) return true;
    }
    return false;
  }

  /** When what is put off is to be told again. */
  get repeatDue(): number {
    const isPutOff = [...this.#held.values()].some((held) => held.isPutOff && !held.isTold);
    return isPutOff ? this.#repeatFrom : Number.POSITIVE_INFINITY;
  }

  /** When something has to be said next, so that the worker is not taken for dead. */
  get beatDue(): number {
    return this.#held.size === 0 ? Number.POSITIVE_INFINITY : this.#lastSent + this.#beatMs;
  }

  /** How many more runs the worker has room for, once it has told what it has to tell. What is put off takes no place. */
  free(now: number): number {
    return this.#freeBeside(this.#split(now).named);
  }

  /** Takes no more runs, and gives back what has not begun. */
  drain(): void {
    this.#isDraining = true;
    for (const held of this.#held.values()) {
      if (held.state === "given") held.state = "released";
    }
  }

  /** The next claim. There is none open. */
  claim(now: number): Said<ClaimRequest> {
    const said = this.#say(now, (common, { told, named }) => ({
      ...common,
      worker: this.#options.worker,
      ...(this.#cookie === undefined ? {} : { cookie: this.#cookie }),
      free: this.#freeBeside(named),
      // Who has something to tell is answered at once.
      wait_ms: told.length > 0 ? 0 : this.waitMs,
      ...(this.#hasLabels ? { labels: { ...this.#options.labels } } : {}),
    }));
    this.#open = said.number;
    return said;
  }

  /** The next beat; a claim may be open beside it. */
  beat(now: number): Said<BeatRequest> {
    return this.#say(now, (common) => common);
  }

  /** The answer to this claim is not listened to, or was an error. */
  settle(number: number): void {
    if (this.#open === number) {
      this.#open = undefined;
      this.#settled = number;
    }
  }

  /** A request got no answer, or an error: what it told is told again. */
  fail(said: Said<unknown>): void {
    this.settle(said.number);
    for (const held of said.told) held.isTold = false;
  }

  /** An answer has come. `BadToken` if it has a token that JavaScript cannot hold. */
  take(said: Said<unknown>, answer: ClaimAnswer, now: number): Orders {
    const isClaim = this.#open === said.number;
    this.settle(said.number);
    this.#beatMs = answer.beat_ms;
    const isOtherCookie = answer.cookie !== this.#cookie;
    if (said.number > this.#cookieNumber) {
      [this.#cookie, this.#cookieNumber] = [answer.cookie, said.number];
    }
    for (const ack of answer.acks) {
      const held = this.#find(ack);
      if (held?.state === "done" || held?.state === "released") this.#held.delete(ack.id);
    }
    const lost = answer.lost.filter((one) => this.#find(one) !== undefined);
    const ended = lost.filter((one) => this.#find(one)?.state === "executing");
    for (const one of lost) this.#held.delete(one.id);
    this.#putOff(said, now);
    const cancel = this.#cancel(answer.cancel);
    this.#confirm(said, answer);
    // Runs come only with claims; those of one that is settled already were never ours.
    for (const run of isClaim ? answer.runs : []) {
      ended.push(...this.#give(run, answer, now));
    }
    const isNews = answer.runs.length + answer.acks.length + lost.length + cancel.length > 0;
    const isUnheard = said.named.some((held) => held.state === "given" && held.confirmedUntil <= now);
    const isDrain = answer.drain === true;
    return { cancel, lost: ended, isDrain, isNews: isNews || isOtherCookie, isOpen: isUnheard };
  }

  /** The runs that may begin now. They count as executing from here on. */
  begin(now: number): ClaimedRun[] {
    const begun: ClaimedRun[] = [];
    for (const held of this.#held.values()) {
      const isBlocked = this.#executing.has(held.run.id);
      if (held.state !== "given" || held.confirmedUntil <= now || isBlocked) continue;
      held.state = "executing";
      this.#executing.set(held.run.id, 1);
      this.#executingCount += 1;
      begun.push(held.run);
    }
    return begun;
  }

  /** Until when the worker may act on a run without being heard; undefined if it does not have it any more. */
  confirmedUntil(run: ClaimedRun): number | undefined {
    return this.#find(run)?.confirmedUntil;
  }

  /** What came of a run, which its handler has ended or not. It does not count if the run is lost. */
  report(result: DoneRun): void {
    const held = this.#find(result);
    if (held?.state !== "executing") return;
    held.state = "done";
    held.result = result;
  }

  /** A handler has ended. */
  end(id: string): void {
    const left = (this.#executing.get(id) ?? 0) - 1;
    this.#executingCount -= 1;
    if (left > 0) this.#executing.set(id, left);
    else this.#executing.delete(id);
  }

  #say<T>(now: number, make: (common: BeatRequest & { running: HeldRun[] }, split: Split) => T): Said<T> {
    this.#number += 1;
    for (const [number, at] of this.#sent) {
      if (at + this.#options.leaseMs > now) break;
      this.#sent.delete(number);
    }
    this.#sent.set(this.#number, now);
    this.#lastSent = now;
    const split = this.#split(now);
    const { told, named, putOff } = split;
    const done = told.filter((held) => held.state === "done").map((held) => held.result as DoneRun);
    const released = [...told, ...putOff].filter((held) => held.state === "released").map(name);
    const results = putOff.filter((held) => held.state === "done");
    for (const held of told) held.isTold = true;
    const common = {
      incarnation: this.#options.incarnation,
      // This library keeps no log of what it begins.
      since: this.#options.incarnation,
      number: this.#number,
      settled: this.#settled,
      queues: [...this.#options.queues],
      lease_ms: this.#options.leaseMs,
      done,
      running: [...named, ...results].map(name),
      released,
      draining: this.#isDraining,
    };
    return { body: make(common, split), number: this.#number, sent: now, named, told };
  }

  /** What goes into `done` and `released` now, what into `running`, and what is named only, until its pause is over. */
  #split(now: number): Split {
    const split: Split = { told: [], named: [], putOff: [] };
    let bytes = 0;
    for (const held of this.#held.values()) {
      const isResult = held.state === "done" || held.state === "released";
      const isDue = this.#isDue(held, now);
      // A character takes up to six bytes as JSON.
      bytes += isDue && held.state === "done" ? 200 + 6 * (held.result?.error?.length ?? 0) : 0;
      // Results that are too much for one request are named, and told later.
      const isTold = isDue && (held.state === "released" || bytes <= DONE_BYTES_MAX);
      if (isTold) split.told.push(held);
      else if (isResult && !isDue) split.putOff.push(held);
      else split.named.push(held);
    }
    return split;
  }

  /** Whether a result, or that a run is given back, is to be told now. */
  #isDue(held: Held, now: number): boolean {
    const isResult = held.state === "done" || held.state === "released";
    return isResult && (!held.isPutOff || now >= this.#repeatFrom);
  }

  /** What was told and not taken is told again later, and after others: its owner could not be asked. */
  #putOff(said: Said<unknown>, now: number): void {
    const left = said.told.filter((held) => this.#find(held.run) === held);
    for (const held of left) {
      [held.isTold, held.isPutOff] = [false, true];
      this.#held.delete(held.run.id);
      this.#held.set(held.run.id, held);
    }
    if (left.length === 0) {
      const isPutOff = [...this.#held.values()].some((held) => held.isPutOff);
      if (!isPutOff) [this.#repeatFrom, this.#repeatMs] = [Number.NEGATIVE_INFINITY, REPEAT_MS];
    } else if (said.sent >= this.#repeatFrom) {
      // A request that came during the pause was about other things: it does not put it off.
      this.#repeatFrom = now + this.#repeatMs;
      this.#repeatMs = Math.min(REPEAT_MS_MAX, this.#repeatMs * 2);
    }
  }

  #freeBeside(named: readonly Held[]): number {
    if (this.#isDraining) return 0;
    const waiting = named.filter((held) => held.state === "given" || held.state === "done").length;
    const busy = this.#executingCount + waiting;
    return Math.max(0, Math.min(this.#options.capacity - busy, NAMED_MAX - this.#held.size));
  }

  #find(one: HeldRun): Held | undefined {
    const held = this.#held.get(one.id);
    return held?.run.token === one.token ? held : undefined;
  }

  #cancel(wanted: readonly HeldRun[]): HeldRun[] {
    const told: HeldRun[] = [];
    for (const one of wanted) {
      const held = this.#find(one);
      if (held === undefined || held.isCancelled) continue;
      held.isCancelled = true;
      if (held.state === "executing") told.push(one);
      if (held.state === "given") {
        held.state = "done";
        held.result = { ...name(held), result: "cancelled" };
      }
    }
    return told;
  }

  #confirm(said: Said<unknown>, answer: ClaimAnswer): void {
    const sent = this.#sent.get(answer.as_of);
    if (sent === undefined) return;
    const unheard = new Set(answer.unheard.map((one) => one.id));
    for (const held of said.named) {
      if (!unheard.has(held.run.id)) held.confirmedUntil = Math.max(held.confirmedUntil, sent + answer.lease_ms);
    }
  }

  /** Takes a run, and tells which older attempt of it is to end. */
  #give(run: ClaimedRun, answer: ClaimAnswer, now: number): HeldRun[] {
    if (!Number.isSafeInteger(run.token)) throw new BadToken(run.id);
    const former = this.#held.get(run.id);
    if (former !== undefined && former.run.token >= run.token) return [];
    const sent = this.#sent.get(answer.as_of);
    this.#held.set(run.id, {
      run,
      state: this.#isDraining ? "released" : "given",
      confirmedUntil: sent === undefined ? now : sent + answer.lease_ms,
      isCancelled: false,
      result: undefined,
      isTold: false,
      isPutOff: false,
    });
    return former?.state === "executing" ? [name(former)] : [];
  }
}

/** A token of 2^53 or more, which `JSON.parse` rounds. Tokens are microseconds since 1970, so the year is 2255. */
export class BadToken extends Error {
  override name = "BadToken";

  constructor(id: string) {
    super(`the token of ${id} is 2^53 or more, and JavaScript would round it: use another worker`);
  }
}

function name(held: Held): HeldRun {
  return { id: held.run.id, token: held.run.token };
}
