/**
 * A member of a ring: it is told when it is its turn, by whichever server answers.
 *
 * It says again and again that it is there, also while a turn is carried out. Of a subscription with `accept` a part is given
 * out only once a server has acknowledged that it is this member's.
 */

import { pause, wall } from "./clock.js";
import { Conflict, NotFound, Refused, Unauthorized, WatchbellError } from "./error.js";
import { Servers } from "./exchange.js";
import type { ServerOptions } from "./exchange.js";
import type { MemberAnswer, MemberRequest, MemberTurn } from "./wire.js";

export interface RingMemberOptions extends ServerOptions {
  ring: string;
  /** Who this is. One name, one process: a later one ends the earlier. */
  name: string;
  /** Only turns of these subscriptions; of all, if it is left out. */
  subscriptions?: readonly string[];
  /** Where it is said that no server answers, or that a turn is left out. To stderr if it is left out. */
  log?: (sentence: string) => void;
}

/** How long an answer waits for a turn: a member whose machine is gone is noticed so much later. */
const WAIT_MS = 2_000;

/** How much longer an answer may take. Then another server is asked, before the member counts as silent. */
const ANSWER_MS = 2_000;

const PAUSE_MS = 250;

/** Turns that wait while one is carried out; those beyond are left out. */
const TURNS_WAITING_MAX = 64;

/** Takes part in a ring. The key needs the scope `node` or `worker`. */
export class RingMember {
  readonly #servers: Servers;
  readonly #name: string;
  readonly #path: string;
  readonly #subscriptions: readonly string[];
  readonly #log: (sentence: string) => void;
  readonly #ender = new AbortController();
  readonly #waiting: MemberTurn[] = [];
  #visit: number | undefined;
  #after: string | undefined;
  #failed: unknown;
  #wake: () => void = () => undefined;

  constructor(options: RingMemberOptions) {
    this.#servers = new Servers(options);
    this.#name = options.name;
    this.#path = `/v1/rings/${encodeURIComponent(options.ring)}`;
    this.#subscriptions = options.subscriptions ?? [];
    const say = options.log ?? ((sentence: string) => console.error(`watchbell: ${sentence}`));
    this.#log = (sentence) => say(`member ${options.name} of ${options.ring}: ${sentence}`);
  }

  /** Lets `turns` end, and the member leave. */
  stop(): void {
    this.#ender.abort(new Error("the member was stopped"));
    this.#wake();
  }

  /**
   * The turns of this member, as they come, until `stop` is called or the loop is left; then it leaves the ring. Once; for
   * another time make another member. Throws a `Conflict` if somebody else has joined under the name since.
   */
  async *turns(): AsyncGenerator<MemberTurn, void, undefined> {
    const attending = this.#attend();
    try {
      while (!this.#ender.signal.aborted) {
        const turn = this.#waiting.shift();
        if (turn === undefined) {
          if (this.#failed !== undefined) throw this.#failed;
          await new Promise<void>((resolve) => (this.#wake = resolve));
        } else if (await this.#accept(turn)) {
          await this.#sleep(Date.parse(turn.at) - wall().getTime());
          if (!this.#ender.signal.aborted) yield turn;
        }
      }
    } finally {
      this.stop();
      await attending;
      await this.#leave();
    }
  }

  async #attend(): Promise<void> {
    let isTold = false;
    while (!this.#ender.signal.aborted) {
      const { url } = this.#servers;
      try {
        this.#take(await this.#say());
        if (isTold) this.#log("a server answers again");
        isTold = false;
      } catch (error) {
        if (this.#ender.signal.aborted) return;
        if (error instanceof Conflict && error.kind === "member-gone") {
          this.#log(`${error.message}; it joins anew`);
          this.#visit = undefined;
          continue;
        }
        const isFinal = [Conflict, NotFound, Refused, Unauthorized].some((kind) => error instanceof kind);
        if (isFinal || !(error instanceof WatchbellError)) {
          this.#failed = error;
          this.#wake();
          return;
        }
        if (!isTold) this.#log(`${error.message}; it goes on asking`);
        isTold = true;
        this.#servers.leave(url);
        await this.#sleep(PAUSE_MS);
      }
    }
  }

  #say(): Promise<MemberAnswer> {
    const body: MemberRequest = {
      wait_ms: WAIT_MS,
      ...(this.#visit === undefined ? {} : { visit: this.#visit }),
      ...(this.#after === undefined ? {} : { after: this.#after }),
      ...(this.#subscriptions.length === 0 ? {} : { subscriptions: [...this.#subscriptions] }),
    };
    const path = `${this.#path}/members/${encodeURIComponent(this.#name)}`;
    const signal = this.#ender.signal;
    return this.#servers.ask({ method: "PUT", path, body, timeoutMs: WAIT_MS + ANSWER_MS, signal });
  }

  #take(answer: MemberAnswer): void {
    this.#visit = answer.visit;
    this.#after = answer.after;
    for (const turn of answer.turns) {
      if (this.#waiting.length < TURNS_WAITING_MAX) {
        this.#waiting.push(turn);
      } else {
        this.#log(`${TURNS_WAITING_MAX} turns wait already; turn ${turn.number} is left out`);
      }
    }
    if (answer.turns.length > 0) this.#wake();
  }

  /** Whether the part is this member's. If no server says so, it is not to be carried out. */
  async #accept(turn: MemberTurn): Promise<boolean> {
    if (!turn.accept) return true;
    const subscription = encodeURIComponent(turn.subscription);
    const path = `${this.#path}/subscriptions/${subscription}/turns/${turn.number}/accept`;
    const body = { member: this.#name, part: turn.part, generation: turn.generation };
    for (let asked = 0; asked < this.#servers.count; asked += 1) {
      const { url } = this.#servers;
      try {
        await this.#servers.ask({ method: "POST", path, body, timeoutMs: ANSWER_MS });
        return true;
      } catch (error) {
        if (error instanceof Conflict || error instanceof NotFound) return false;
        this.#log(`turn ${turn.number} is not accepted: ${String(error)}`);
        this.#servers.leave(url);
      }
    }
    return false;
  }

  async #leave(): Promise<void> {
    if (this.#visit === undefined) return;
    const path = `${this.#path}/members/${encodeURIComponent(this.#name)}?visit=${this.#visit}`;
    for (let asked = 0; asked < this.#servers.count; asked += 1) {
      const { url } = this.#servers;
      try {
        await this.#servers.ask({ method: "DELETE", path, timeoutMs: ANSWER_MS });
        return;
      } catch (error) {
        if (error instanceof Conflict || error instanceof NotFound) return;
        this.#log(`it could not leave: ${String(error)}`);
        this.#servers.leave(url);
      }
    }
  }

  async #sleep(ms: number): Promise<void> {
    if (ms > 0) await pause(ms, this.#ender.signal).catch(() => undefined);
  }
}
