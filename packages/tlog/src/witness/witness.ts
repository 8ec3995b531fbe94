/**
 * Shows our checkpoints to a witness (C2SP tlog-witness), which remembers the size of the log and signs that it
 * only grew.
 *
 * Promise: cosignatures that are given back were checked against the witness's keys. A witness that has seen more entries
 * than we have, or others, is an `audit_integrity`: the log was rolled back or rewritten. Anything else that goes wrong
 * says nothing about the log.
 * Bound: `TRIES_MAX` requests under one deadline, an answer of at most 64 KiB. Cancellation: by the signal.
 */
import { Egress, rulesFor, type EgressInit } from '@ron/egress';
import { Deadline, RonError } from '@ron/kernel';
import type { SignedCheckpoint } from '../log/checkpoint-file.ts';
import { parseVkey, verifyNote, type NoteKey } from '../note/note-key.ts';
import { formatNote, formatSignature, parseNote, parseSignature } from '../note/note.ts';

const DEADLINE_MS = 5000;
const ANSWER_BYTES_MAX = 64 * 1024;
/** The witness may move on between two requests, if another client shows it our checkpoints too. */
const TRIES_MAX = 3;

export interface WitnessInit {
  /** The submission prefix: `/add-checkpoint` is added. */
  url: string;
  /** Keys that the witness signs with. */
  vkeys: readonly string[];
  /** For one checkpoint. Default 5 s. */
  deadline_ms?: number;
  /** Opens networks for a witness without a public address; plain HTTP needs that too. Default: none. */
  egress?: Pick<EgressInit, 'networks' | 'ca'>;
}

export interface Cosigned {
  /** Signature lines, for `TransparencyLog.addCosignatures`. */
  readonly lines: string;
  /** The keys that signed. */
  readonly signed_by: readonly string[];
}

/** Gives the consistency proof between two sizes: `TransparencyLog.consistency`. */
export type Consistencies = (from: number, to: number) => Promise<readonly Uint8Array[]>;

export class Witness {
  readonly name: string;
  readonly #url: string;
  readonly #keys: readonly NoteKey[];
  readonly #deadline_ms: number;
  readonly #egress: Egress;
  #size = 0;

  constructor(init: WitnessInit) {
    this.#keys = init.vkeys.map(parseVkey);
    if (this.#keys.length === 0) throw new RonError('validation', 'a witness has a key');
    this.name = this.#keys[0]!.name;
    this.#url = `${init.url.replace(/\/+$/, '')}/add-checkpoint`;
    this.#deadline_ms = init.deadline_ms ?? DEADLINE_MS;
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

  /** The largest size that it is known to have cosigned, in this process. */
  get size(): number {
    return this.#size;
  }

  /** Asks for a cosignature over `checkpoint`. */
  async cosign(checkpoint: SignedCheckpoint, consistency: Consistencies, signal: AbortSignal): Promise<Cosigned> {
    using deadline = Deadline.after('witness', this.#deadline_ms, { signal });
    return await deadline.run(async () => {
      for (let tries = 0; tries < TRIES_MAX; tries++) {
        const old = Math.min(this.#size, checkpoint.size);
        const proof = await consistency(old, checkpoint.size);
        const answer = await this.#ask(requestBody(old, proof, checkpoint.text), deadline);
        if (answer.status !== 409) return this.#accept(checkpoint, answer);
        this.#size = this.#conflict(old, checkpoint, answer.text);
      }
      throw new RonError('unreachable', `the witness ${this.name} changes faster than it can be asked`);
    });
  }

  async #ask(body: string, deadline: Deadline): Promise<{ status: number; text: string }> {
    // Adding a checkpoint twice has the effect of adding it once.
    const request = { url: this.#url, method: 'POST', body: Buffer.from(body), idempotent: true } as const;
    const answer = await this.#egress.whole(request, { deadline });
    return { status: answer.status, text: Buffer.from(answer.body).toString('utf8') };
  }

  /** What the witness has cosigned last; throws when that cannot be the beginning of our log. */
  #conflict(old: number, { size }: SignedCheckpoint, text: string): number {
    const found = /^(0|[1-9]\d{0,15})\n$/.exec(text)?.[1];
    if (found === undefined) throw new RonError('unreachable', `the witness ${this.name} does not name its size`);
    const theirs = Number(found);
    if (theirs > size) throw rolledBack(`the witness ${this.name} has seen ${theirs} entries, and there are ${size}`);
    if (theirs !== old) return theirs;
    // It was asked from where it says to be: then only another root of the same size is a reason to refuse.
    if (theirs === size) throw rolledBack(`the witness ${this.name} has seen other entries among the first ${size}`);
    throw new RonError(
      'unreachable',
      `the witness ${this.name} contradicts itself: it is at ${theirs}, as it was told`,
    );
  }

  #accept(checkpoint: SignedCheckpoint, { status, text }: { status: number; text: string }): Cosigned {
    if (status === 422)
      throw rolledBack(`the witness ${this.name} finds that the log does not continue what it has seen`);
    if (status === 404) throw new RonError('not_found', `the witness ${this.name} does not know ${checkpoint.origin}`);
    if (status === 403) throw new RonError('forbidden', `the witness ${this.name} does not trust the keys of the log`);
    if (status !== 200) throw new RonError('unreachable', `the witness ${this.name} answered with ${status}`);
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
      throw new RonError('validation', `the witness ${this.name} gave no signature of its own`, { cause });
    }
  }
}

function requestBody(old: number, proof: readonly Uint8Array[], checkpoint: string): string {
  const lines = proof.map((hash) => `${Buffer.from(hash).toString('base64')}\n`);
  return `old ${old}\n${lines.join('')}\n${checkpoint}`;
}

const rolledBack = (what: string): RonError =>
  new RonError('audit_integrity', `the log was rolled back or rewritten: ${what}`);
