/**
 * Submits checkpoints to a witness (C2SP tlog-witness), which remembers the size of the log and signs that it only grew.
 *
 * Contract: returned cosignatures were verified with the witness's keys. A witness that has seen more entries than the log
 * has, or different ones, is `audit_integrity`: the log was rolled back or rewritten. Any other failure says nothing about
 * the log.
 * Bound: `TRIES_MAX` requests under one deadline, a response of at most 64 KiB. Cancellation: by the signal.
 */
import { Egress, rulesFor, type EgressInit } from '@ron/egress';
import { Deadline, RonError } from '@ron/kernel';
import type { SignedCheckpoint } from '../log/checkpoint-file.ts';
import { parseVkey, verifyNote, type NoteKey } from '../note/note-key.ts';
import { formatNote, formatSignature, parseNote, parseSignature } from '../note/note.ts';
import { postToSocket } from './socket-post.ts';

const DEADLINE_MS = 5000;
const ANSWER_BYTES_MAX = 64 * 1024;
/** The witness may advance between two requests if another client submits our checkpoints too. */
const TRIES_MAX = 3;
const PATH = '/add-checkpoint';
const UNIX = 'unix:';

export interface WitnessInit {
  /** The submission prefix, to which `/add-checkpoint` is appended, or `unix:PATH` of its socket. */
  url: string;
  /** The witness's verification keys. */
  vkeys: readonly string[];
  /** Per checkpoint. Default 5 s. */
  deadline_ms?: number;
  /** Allows networks for a witness without a public address, and plain HTTP to them. Default: none. */
  egress?: Pick<EgressInit, 'networks' | 'ca'>;
}

export interface Cosigned {
  /** Signature lines, for `TransparencyLog.addCosignatures`. */
  readonly lines: string;
  /** The keys that signed. */
  readonly signed_by: readonly string[];
}

/** Returns the consistency proof between two sizes: `TransparencyLog.consistency`. */
export type Consistencies = (from: number, to: number) => Promise<readonly Uint8Array[]>;

export class Witness {
  readonly name: string;
  readonly #url: string;
  readonly #socket: string | undefined;
  readonly #keys: readonly NoteKey[];
  readonly #deadline_ms: number;
  /** Undefined for a socket. */
  readonly #egress: Egress | undefined;
  /** The log of the last submission. */
  #origin = '';
  #size = 0;

  constructor(init: WitnessInit) {
    this.#keys = init.vkeys.map(parseVkey);
    if (this.#keys.length === 0) throw new RonError('validation', 'a witness needs at least one key');
    this.name = this.#keys[0]!.name;
    this.#deadline_ms = init.deadline_ms ?? DEADLINE_MS;
    this.#socket = init.url.startsWith(UNIX) ? init.url.slice(UNIX.length) : undefined;
    this.#url = `${init.url.replace(/\/+$/, '')}${PATH}`;
    if (this.#socket !== undefined) return;
    const total_ms = this.#deadline_ms;
    this.#egress = new Egress({
      name: 'witness',
      ...rulesFor(this.#url),
      ...init.egress,
      // No connection is kept between two checkpoints, so there is nothing to close.
      limits: { first_byte_ms: total_ms, total_ms, body_bytes_max: ANSWER_BYTES_MAX, idle_sockets_max: 0 },
      breaker: 'none',
    });
  }

  /** The largest size of the current log that the witness is known to have cosigned, in this process. */
  get size(): number {
    return this.#size;
  }

  /** Requests a cosignature over `checkpoint`. */
  async cosign(checkpoint: SignedCheckpoint, consistency: Consistencies, signal: AbortSignal): Promise<Cosigned> {
    if (checkpoint.origin !== this.#origin) this.#size = 0;
    this.#origin = checkpoint.origin;
    using deadline = Deadline.after('witness', this.#deadline_ms, { signal });
    return await deadline.run(async () => {
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        const old = Math.min(this.#size, checkpoint.size);
        const proof = await consistency(old, checkpoint.size);
        const answer = await this.#submit(requestBody(old, proof, checkpoint.text), deadline);
        if (answer.status !== 409) return this.#accept(checkpoint, answer);
        this.#size = this.#conflict(old, checkpoint, answer.text);
      }
      throw new RonError('unreachable', `the witness ${this.name} advances faster than checkpoints can be submitted`);
    });
  }

  async #submit(body: string, deadline: Deadline): Promise<{ status: number; text: string }> {
    if (this.#egress === undefined) {
      const { signal } = deadline;
      return await postToSocket({ socket: this.#socket!, path: PATH, body, bytes_max: ANSWER_BYTES_MAX, signal });
    }
    // Submitting a checkpoint is idempotent.
    const request = { url: this.#url, method: 'POST', body: Buffer.from(body), idempotent: true } as const;
    const answer = await this.#egress.whole(request, { deadline });
    return { status: answer.status, text: Buffer.from(answer.body).toString('utf8') };
  }

  /** The size that the witness cosigned last. Throws if that cannot be a prefix of our log. */
  #conflict(old: number, { size }: SignedCheckpoint, text: string): number {
    const found = /^(0|[1-9]\d{0,15})\n$/.exec(text)?.[1];
    if (found === undefined) throw new RonError('unreachable', `the witness ${this.name} returned no valid size`);
    const theirs = Number(found);
    if (theirs > size) throw rolledBack(`the witness ${this.name} has seen ${theirs} entries, but the log has ${size}`);
    if (theirs !== old) return theirs;
    // The request started at the size that the witness reports, so the only valid conflict is another root at the same size.
    if (theirs === size)
      throw rolledBack(`the witness ${this.name} has seen different entries among the first ${size}`);
    throw new RonError('unreachable', `the witness ${this.name} contradicts itself: it refuses its own size ${theirs}`);
  }

  #accept(checkpoint: SignedCheckpoint, { status, text }: { status: number; text: string }): Cosigned {
    if (status === 422)
      throw rolledBack(`the witness ${this.name} reports that the log does not extend the checkpoint that it cosigned`);
    if (status === 404) throw new RonError('not_found', `the witness ${this.name} does not know ${checkpoint.origin}`);
    if (status === 403) throw new RonError('forbidden', `the witness ${this.name} does not trust the keys of the log`);
    if (status !== 200) throw new RonError('unreachable', `the witness ${this.name} responded with status ${status}`);
    try {
      const signatures = text
        .split('\n')
        .filter((line) => line !== '')
        .map(parseSignature);
      const note = parseNote(formatNote({ text: parseNote(checkpoint.text).text, signatures }));
      const signed = verifyNote(note, this.#keys);
      const mine = signatures.filter((each) =>
        signed.some((key) => key.name === each.name && key.key_id === each.key_id),
      );
      this.#size = checkpoint.size;
      return { lines: mine.map(formatSignature).join(''), signed_by: signed.map((key) => key.vkey) };
    } catch (cause) {
      throw new RonError('validation', `the witness ${this.name} returned no valid signature`, { cause });
    }
  }
}

function requestBody(old: number, proof: readonly Uint8Array[], checkpoint: string): string {
  const lines = proof.map((hash) => `${Buffer.from(hash).toString('base64')}\n`);
  return `old ${old}\n${lines.join('')}\n${checkpoint}`;
}

const rolledBack = (what: string): RonError =>
  new RonError('audit_integrity', `the log was rolled back or rewritten: ${what}`);
