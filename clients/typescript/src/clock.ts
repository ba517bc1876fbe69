/** Time: the only file that reads a clock, or waits. */

/** Milliseconds that only grow, whatever somebody does to the wall clock. */
export function steady(): number {
  return performance.now();
}

/** What time it is for people. */
export function wall(): Date {
  return new Date();
}

let last = 0;

/**
 * The wall clock in microseconds, and greater than any that this process was told before.
 *
 * It stays below 2^53, up to which numbers are exact, until the year 2255.
 */
export function wallMicros(): number {
  last = Math.max(last + 1, Math.floor((performance.timeOrigin + performance.now()) * 1000));
  return last;
}

/** What timers of Node take at most: longer ones would fire at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export interface Timer {
  stop(): void;
}

/** Calls after so long, however long that is. */
export function after(ms: number, call: () => void): Timer {
  const due = steady() + ms;
  let timer: NodeJS.Timeout;
  const arm = (): void => {
    const left = Math.max(0, due - steady());
    timer = left > TIMER_MS_MAX ? setTimeout(arm, TIMER_MS_MAX) : setTimeout(call, left);
  };
  arm();
  return { stop: () => clearTimeout(timer) };
}

/** Waits for so long, or throws what ends the signal. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const end = (): void => {
      timer.stop();
      reject(signal?.reason);
    };
    const timer = after(ms, () => {
      signal?.removeEventListener("abort", end);
      resolve();
    });
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** How long to wait before attempt `tried` + 1: 0.1 s, doubled each time up to `most`, half of it by chance. */
export function backoff(tried: number, most: number): number {
  const doubled = Math.min(100 * 2 ** Math.min(tried - 1, 16), most);
  return doubled * (0.5 + Math.random() / 2);
}
