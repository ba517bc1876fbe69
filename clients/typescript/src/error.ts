/** What went wrong. Each class is one thing to do next. */

import type { FieldProblem, Problem } from "./wire.js";

/** Anything that a call may throw. */
export class WatchbellError extends Error {
  /** What the server said, if it said something. */
  readonly problem: Problem | undefined;

  constructor(message: string, problem?: Problem, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.problem = problem;
  }

  /** The status of the answer, if there was one. */
  get status(): number | undefined {
    return this.problem?.status;
  }

  /** Which kind of problem, for programs: `void-claim`. */
  get kind(): string | undefined {
    return this.problem?.type.split(":").at(-1);
  }

  /** Whether what was asked for may have been done all the same: look first. */
  get mayBeDone(): boolean {
    return false;
  }
}

/** 400, 405, 413, 415, 422: change the request. `fields` has each field that is wrong. */
export class Refused extends WatchbellError {
  get fields(): FieldProblem[] {
    return this.problem?.errors ?? [];
  }
}

/** 401, 403: give a key, or one that may do this. */
export class Unauthorized extends WatchbellError {}

/** 404: look which ones there are. A run that has ended cannot be cancelled either. */
export class NotFound extends WatchbellError {}

/** 409, 412: it is so already, or somebody changed it meanwhile. Read again, and decide anew. */
export class Conflict extends WatchbellError {}

/** 429: there are too many. Wait, if `retryAfter` says for how many milliseconds; otherwise make room. */
export class LimitReached extends WatchbellError {
  constructor(
    message: string,
    problem?: Problem,
    readonly retryAfter?: number,
  ) {
    super(message, problem);
  }
}

/** 500 and above: try again, after `retryAfter` milliseconds if it is told. */
export class Unavailable extends WatchbellError {
  constructor(
    message: string,
    problem?: Problem,
    readonly retryAfter?: number,
  ) {
    super(message, problem);
  }

  override get mayBeDone(): boolean {
    return this.status !== 421 && this.status !== 507;
  }
}

/** No Watchbell server answers there: start one, correct the URL, or try again later. */
export class Unreachable extends WatchbellError {
  readonly #mayBeDone: boolean;

  constructor(message: string, mayBeDone: boolean, options?: ErrorOptions) {
    super(message, undefined, options);
    this.#mayBeDone = mayBeDone;
  }

  override get mayBeDone(): boolean {
    return this.#mayBeDone;
  }
}

/** A run has not ended in the time that `wait` was given: wait again. */
export class Unfinished extends WatchbellError {}

/** A later life of this worker was heard, so this one has ended. Give each process a name of its own. */
export class Superseded extends WatchbellError {}

/** What a handler throws if the run failed and trying again is of no use. */
export class DoNotRetry extends Error {
  override name = "DoNotRetry";
}

/**
 * What a handler throws if the run failed and may be tried again no sooner than after `ms`, at most an hour, and no sooner than the
 * pause that the run's `retry` would make: for shorter ones submit with `retry: { delay: "1s", backoff: "constant" }`.
 */
export class RetryAfter extends Error {
  override name = "RetryAfter";

  constructor(
    readonly ms: number,
    message = `to be tried again after ${ms} ms`,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** `signal.reason`: somebody has cancelled the run. */
export class Cancelled extends Error {
  override name = "Cancelled";
}

/** `signal.reason`: the attempt took longer than its run allows. */
export class TimedOut extends Error {
  override name = "TimedOut";
}

/** `signal.reason`: the worker stops, and does not wait for the handler any longer. */
export class Stopped extends Error {
  override name = "Stopped";
}

/** `signal.reason`: no server was heard for the lease, and the lease of the run's queue is strict. */
export class Unconfirmed extends Error {
  override name = "Unconfirmed";
}

/** `signal.reason`: the run was given to another, or has ended. What comes of this attempt does not count. */
export class Lost extends Error {
  override name = "Lost";
}

/** The error that an answer of this status is. */
export function ofProblem(problem: Problem, retryAfter?: number): WatchbellError {
  const message = problem.detail || problem.title;
  switch (problem.status) {
    case 401:
    case 403:
      return new Unauthorized(message, problem);
    case 404:
      return new NotFound(message, problem);
    case 409:
    case 412:
      return new Conflict(message, problem);
    case 429:
      return new LimitReached(message, problem, retryAfter);
    default:
      return problem.status >= 500 || problem.status === 421
        ? new Unavailable(message, problem, retryAfter)
        : new Refused(message, problem);
  }
}
