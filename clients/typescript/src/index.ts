/**
 * Watchbell from Node: a client that submits runs and looks after queues, a worker that carries runs out, and a member of rings.
 *
 * - `client`: what can be asked; `exchange`: one request and its answer, and which server is asked
 * - `worker`: calls handlers, and speaks with servers by itself; `ledger`: the rules of the protocol, without effects;
 *   `order`: that a handler is to end, and whether it knows; `print`: what runs print, and how far they have come
 * - `ring`: a member that takes its turns
 * - `error`: what went wrong, one class for each thing to do next; `wire`: the types of the API; `clock`: time
 */

export { Client } from "./client.js";
export type { ClientOptions, QueueRunFilter, RunFilter, SubmitOptions, WaitOptions } from "./client.js";
export {
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
  Unfinished,
  Unreachable,
  WatchbellError,
} from "./error.js";
export { RingMember } from "./ring.js";
export type { RingMemberOptions } from "./ring.js";
export { Worker } from "./worker.js";
export type { Context, DrainOptions, Handler, HandlerOptions, RunOptions, WorkerOptions } from "./worker.js";
export type {
  Attempt,
  CommandSpec,
  FieldProblem,
  MemberTurn,
  Problem,
  Queue,
  QueueSpec,
  Run,
  RunOutput,
  RunSpec,
  RunState,
  Submitted,
  WorkerDetails,
  WorkerInfo,
} from "./wire.js";
