/** The types of the API, by short names. `openapi.ts` is generated from what a server tells at `/openapi.json`. */

import type { components } from "./openapi.js";

type Schemas = components["schemas"];

export type Ack = Schemas["Ack"];
export type Attempt = Schemas["Attempt"];
export type BatchSpec = Schemas["BatchSpec"];
export type BeatRequest = Schemas["BeatRequest"];
export type ClaimAnswer = Schemas["ClaimAnswer"];
export type ClaimRequest = Schemas["ClaimRequest"];
export type ClaimedRun = Schemas["ClaimedRun"];
export type CommandSpec = Schemas["CommandSpec"];
export type DoneRun = Schemas["DoneRun"];
export type FieldProblem = Schemas["FieldProblem"];
export type HeldRun = Schemas["HeldRun"];
export type MemberAnswer = Schemas["MemberAnswer"];
export type MemberRequest = Schemas["MemberRequest"];
export type MemberTurn = Schemas["MemberTurn"];
export type OutputAnswer = Schemas["OutputAnswer"];
export type OutputChunk = Schemas["OutputChunk"];
export type OutputRequest = Schemas["OutputRequest"];
export type Problem = Schemas["Problem"];
export type Queue = Schemas["Queue"];
export type QueueSpec = Schemas["QueueSpec"];
export type Run = Schemas["Run"];
export type RunOutput = Schemas["RunOutput"];
export type RunSpec = Schemas["RunSpec"];
export type RunState = Schemas["RunState"];
export type Submitted = Schemas["Submitted"];
export type SubmittedBatch = Schemas["SubmittedBatch"];
export type WorkerDetails = Schemas["WorkerDetails"];
/** A worker in a list: `Worker` is the class that is one. */
export type WorkerInfo = Schemas["Worker"];

/** A part of a list; the end is where there is no `next`. */
export interface Page<T> {
  items: T[];
  next?: string | null;
}
