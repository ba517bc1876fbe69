/**
 * What a run prints, and how far it has come: gathered here, and sent once a second at most.
 *
 * Nothing depends on it. The last 64 KiB are kept, so that a server that took over gets them again; what could not be
 * sent within a few seconds of the handler's end is dropped.
 */

import { after, steady, wall } from "./clock.js";
import type { Timer } from "./clock.js";
import { Conflict } from "./error.js";
import type { OutputAnswer, OutputChunk, OutputRequest } from "./wire.js";

export type Stream = "stdout" | "stderr";

/** What is kept, and what a server keeps. */
const KEPT_BYTES_MAX = 65_536;

/** One request has at most 256 KiB, and a byte takes up to six as JSON. */
const SENT_BYTES_MAX = 32_768;
const CHUNKS_MAX = 200;

const SEND_EVERY_MS = 1_000;

/** How often the rest is sent again at the end, if that fails. */
const LAST_TRIES = 3;

const TEXT_CHARS_MAX = 200;

/** What is printed within this time is sent under the time of its first byte, as servers keep it. */
const TOGETHER_MS = 1_000;

interface Piece {
  offset: number;
  stream: Stream;
  at: Date;
  bytes: Buffer;
}

export class Printer {
  readonly #token: number;
  readonly #send: (request: OutputRequest) => Promise<OutputAnswer>;
  #pieces: Piece[] = [];
  /** Bytes that were printed. */
  #printed = 0;
  /** The offset from which on the server wants them. */
  #next = 0;
  #progress: OutputRequest["progress"] | undefined;
  #timer: Timer | undefined;
  #sending: Promise<void> | undefined;
  #lastSent = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(token: number, send: (request: OutputRequest) => Promise<OutputAnswer>) {
    this.#token = token;
    this.#send = send;
  }

  print(data: string | Uint8Array, stream: Stream): void {
    const bytes = Buffer.from(data as string);
    if (this.#isClosed || bytes.length === 0) return;
    const last = this.#pieces.at(-1);
    const at = wall();
    const age = last === undefined ? -1 : at.getTime() - last.at.getTime();
    const isSoon = age >= 0 && age < TOGETHER_MS;
    if (isSoon && last?.stream === stream && last.bytes.length + bytes.length <= 4_096) {
      last.bytes = Buffer.concat([last.bytes, bytes]);
    } else {
      this.#pieces.push({ offset: this.#printed, stream, at, bytes });
    }
    this.#printed += bytes.length;
    this.#forget();
    this.#schedule();
  }

  progress(percent: number | undefined, text: string | undefined): void {
    if (this.#isClosed) return;
    const whole = percent === undefined ? undefined : Math.round(Math.min(100, Math.max(0, percent)));
    this.#progress = {
      ...(whole === undefined || Number.isNaN(whole) ? {} : { percent: whole }),
      ...(text === undefined ? {} : { text: clean(text, TEXT_CHARS_MAX) }),
    };
    this.#schedule();
  }

  /** Sends the rest: after the result nobody would take it. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.stop();
    await this.#sending;
    for (let tried = 0; tried < LAST_TRIES && this.#hasSome(); tried += 1) {
      await this.#flush();
    }
  }

  /** The run is lost: nobody takes what it prints. */
  drop(): void {
    this.#isClosed = true;
    this.#timer?.stop();
    this.#pieces = [];
    this.#progress = undefined;
  }

  #hasSome(): boolean {
    return this.#progress !== undefined || (this.#pieces.length > 0 && this.#next < this.#printed);
  }

  #schedule(): void {
    if (this.#isClosed || this.#timer !== undefined || this.#sending !== undefined) return;
    const due = this.#lastSent + SEND_EVERY_MS;
    this.#timer = after(Math.max(0, due - steady()), () => {
      this.#timer = undefined;
      this.#sending = this.#flush().finally(() => {
        this.#sending = undefined;
        if (this.#hasSome()) this.#schedule();
      });
    });
  }

  /** Sends all that there is, in as many requests as it takes. What fails stays. */
  async #flush(): Promise<void> {
    while (this.#hasSome()) {
      const progress = this.#progress;
      this.#progress = undefined;
      this.#lastSent = steady();
      const oldest = this.#pieces[0]?.offset;
      try {
        const answer = await this.#send({
          token: this.#token,
          ...(oldest === undefined ? {} : { oldest }),
          chunks: this.#chunks(),
          ...(progress === undefined ? {} : { progress }),
        });
        this.#next = Math.max(answer.next, this.#pieces[0]?.offset ?? this.#printed);
      } catch (error) {
        if (error instanceof Conflict) return this.drop();
        this.#progress ??= progress;
        return;
      }
    }
  }

  #chunks(): OutputChunk[] {
    const chunks: OutputChunk[] = [];
    let left = SENT_BYTES_MAX;
    for (const piece of this.#pieces) {
      const from = Math.max(0, this.#next - piece.offset);
      if (from >= piece.bytes.length) continue;
      if (left === 0 || chunks.length === CHUNKS_MAX) break;
      const bytes = piece.bytes.subarray(from, from + left);
      left -= bytes.length;
      chunks.push({ offset: piece.offset + from, stream: piece.stream, at: piece.at.toISOString(), ...spelled(bytes) });
    }
    return chunks;
  }

  /** Forgets what is older than the last 64 KiB. */
  #forget(): void {
    const oldest = this.#printed - KEPT_BYTES_MAX;
    while (this.#pieces[0] !== undefined && this.#pieces[0].offset < oldest) {
      const first = this.#pieces[0];
      if (first.offset + first.bytes.length <= oldest) {
        this.#pieces.shift();
        continue;
      }
      first.bytes = first.bytes.subarray(oldest - first.offset);
      first.offset = oldest;
    }
    this.#next = Math.max(this.#next, oldest);
  }
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function spelled(bytes: Buffer): { text: string } | { base64: string } {
  try {
    return { text: UTF8.decode(bytes) };
  } catch {
    return { base64: bytes.toString("base64") };
  }
}

/** At most so many characters, none of which is half of one: a server refuses those. */
export function clean(text: string, charsMax: number): string {
  const characters = Array.from(text.slice(0, 2 * charsMax)).slice(0, charsMax);
  return Buffer.from(characters.join("")).toString();
}
