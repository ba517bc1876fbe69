/**
 * The order to end that a handler gets by its signal, and whether the handler has seen it.
 *
 * A handler that has seen that its run was cancelled, and ends, has ended early, whatever it does then. One that never
 * looked has done its work. Seen is: it read `aborted` or `reason`, called `throwIfAborted`, has a listener that was called,
 * or was thrown it. `fetch` and the timers of Node look and listen on behalf of the handler that passed its signal on.
 */

import { getEventListeners } from "node:events";

export class EndOrder {
  readonly #ender = new AbortController();
  #isSeen = false;
  #isWatched = false;
  #reason: Error | undefined;

  /** What the handler is given. It notes from then on that it is looked at. */
  get signal(): AbortSignal {
    const { signal } = this.#ender;
    if (!this.#isWatched) {
      this.#isWatched = true;
      const looked = (): void => {
        this.#isSeen ||= this.#reason !== undefined;
      };
      for (const name of ["aborted", "reason"] as const) {
        const { get } = Object.getOwnPropertyDescriptor(AbortSignal.prototype, name) as { get: () => unknown };
        Object.defineProperty(signal, name, {
          get: () => {
            looked();
            return get.call(signal);
          },
        });
      }
      Object.defineProperty(signal, "throwIfAborted", {
        value: () => {
          looked();
          AbortSignal.prototype.throwIfAborted.call(signal);
        },
      });
    }
    return signal;
  }

  /** Why the handler is to end, if it is. */
  get reason(): Error | undefined {
    return this.#reason;
  }

  /** Whether the handler knows. */
  get isSeen(): boolean {
    return this.#isSeen;
  }

  /** Whether what a handler threw is this order, or what others make of it. */
  isThrown(error: unknown): boolean {
    if (!(error instanceof Error)) return false;
    return error === this.#reason || error.cause === this.#reason || error.name === "AbortError";
  }

  /** Tells the handler to end; once. Whether this was the first time. */
  give(reason: Error): boolean {
    if (this.#reason !== undefined) return false;
    this.#reason = reason;
    this.#isSeen = getEventListeners(this.#ender.signal, "abort").length > 0;
    this.#ender.abort(reason);
    return true;
  }
}
