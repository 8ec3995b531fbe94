/**
 * The packs of edge: mounted from the files of a directory, uploaded, replaced and removed while requests read them.
 *
 *     put ------> temporary file --> verify(16) --> pack_verifier --> verified, synced, renamed, mounted
 *     remove, reload, changed files ---^
 *
 * Contract: as `Packs`. [edge I-2] The task `pack_verifier` is the only writer of mounts and of names in the directory; calls send
 * it jobs and wait.
 * Bound: `UPLOADS_MAX` uploads, and the channel `verify`. Overflow: `busy`.
 * Cancellation: by the signal of each call; an upload is not cancelled once it is being renamed.
 */
import { RonError, type Deadline } from '@ron/kernel';
import { PACK_NAME_PATTERN, type Address } from '@ron/proto';
import type { MountedPack } from './mounted-pack.ts';
import type { PackInfo } from './pack.ts';
import type { PackDirectory } from './pack-directory.ts';
import { JobEnd, type PackJob } from './pack-jobs.ts';
import { receiveUpload } from './pack-upload.ts';
import type { PackVerifier } from './pack-verifier.ts';
import type { BadPack, Packs, PutPackInit } from './packs.ts';

const UPLOADS_MAX = 16;
const RETRY_AFTER_MS = 1000;

export interface PackRegistryInit {
  /** Undefined: packs are not uploaded or removed, because of amnesia. */
  readonly directory: PackDirectory | undefined;
  readonly verifier: PackVerifier;
  readonly bytes_max: number;
  /** The budget for verifying an upload, and for one step on the disk. */
  readonly deadline: (signal?: AbortSignal) => Deadline;
  /** The bytes of an object of storage. Undefined without a storage. */
  readonly fetch: ((address: Address, signal: AbortSignal) => AsyncIterable<Uint8Array>) | undefined;
}

export class PackRegistry implements Packs, AsyncDisposable {
  readonly #init: PackRegistryInit;
  readonly #verifier: PackVerifier;
  #uploads = 0;

  constructor(init: PackRegistryInit) {
    this.#init = init;
    this.#verifier = init.verifier;
  }

  get(name: string): MountedPack | undefined {
    return this.#verifier.table.get(name);
  }

  absence(name: string): RonError {
    const { plan, isStarted } = this.#verifier;
    const bad = plan.bad.get(name);
    if (bad !== undefined) return notReady(`pack ${name} is refused: ${bad.reason}`);
    if (plan.problem !== undefined) return notReady(plan.problem);
    if (!isStarted || plan.isPending(name)) return notReady(`pack ${name} is being verified`);
    return new RonError('not_found', `there is no pack ${name.slice(0, 64)}`);
  }

  list(): MountedPack[] {
    return this.#verifier.table.list().toSorted(byName);
  }

  bad(): BadPack[] {
    const bad = [...this.#verifier.plan.bad.values()].toSorted(byName);
    return bad.map(({ name, file, reason }) => {
      const mount = this.get(name);
      return { name, file, reason, isServed: mount !== undefined && mount.pack.problem === undefined };
    });
  }

  get problem(): string | undefined {
    const { plan, isStarted } = this.#verifier;
    if (plan.problem !== undefined) return plan.problem;
    if (!isStarted) return `packs are being verified: ${plan.pending} left`;
    const damaged = this.list().find(({ pack }) => pack.problem !== undefined);
    return damaged && `pack ${damaged.name} is damaged: ${damaged.pack.problem}`;
  }

  async put(init: PutPackInit): Promise<{ name: string; info: PackInfo; existed: boolean }> {
    const directory = this.#writable('packs are not uploaded');
    const { name, expect, signal } = init;
    requireName(name);
    // [edge I-9] Refused before the body is read.
    if (this.#uploads >= UPLOADS_MAX) throw busy('too many packs are uploaded');
    const { bytes_max, deadline } = this.#init;
    const body = this.#bodyOf(init);
    this.#uploads += 1;
    try {
      const { upload, format } = await receiveUpload({ directory, name, body, bytes_max, step: () => deadline() });
      try {
        const existed = this.get(name) !== undefined;
        // [edge I-4] The budget begins after the last byte.
        using due = deadline(signal);
        const ends = new JobEnd<PackInfo>(due.signal);
        const info = await this.#submit({ kind: 'install', name, format, upload, expect, ends });
        return { name, info, existed };
      } finally {
        await directory.discard(upload).catch(() => undefined);
      }
    } finally {
      this.#uploads -= 1;
    }
  }

  async remove(name: string, signal: AbortSignal): Promise<boolean> {
    this.#writable('packs are not removed');
    requireName(name);
    return await this.#submit({ kind: 'remove', name, ends: new JobEnd<boolean>(signal) });
  }

  async reload(signal: AbortSignal): Promise<void> {
    await this.#submit({ kind: 'scan', ends: new JobEnd<void>(signal) });
  }

  /** The task `pack_verifier`. */
  run(stopping: AbortSignal): Promise<void> {
    return this.#verifier.run(stopping);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#verifier[Symbol.asyncDispose]();
  }

  #writable(consequence: string): PackDirectory {
    const { directory } = this.#init;
    if (directory !== undefined) return directory;
    throw new RonError('reject_policy', `amnesia is enabled: ${consequence}`, { reason: 'amnesia' });
  }

  #bodyOf({ from, signal }: PutPackInit): AsyncIterable<Uint8Array> {
    if (typeof from !== 'string') return from;
    const { fetch } = this.#init;
    if (fetch !== undefined) return fetch(from, signal);
    throw new RonError('validation', 'edge.storage_url is not configured: upload the pack itself');
  }

  async #submit<T>(job: PackJob & { readonly ends: JobEnd<T> }): Promise<T> {
    const sent = this.#verifier.submit(job);
    if (sent === 'full') job.ends.fail(busy('too many packs wait for verification'));
    if (sent === 'closed') job.ends.fail(new RonError('draining', 'edge is stopping'));
    return await job.ends.outcome;
  }
}

const byName = (a: { readonly name: string }, b: { readonly name: string }): number => (a.name < b.name ? -1 : 1);

function requireName(name: string): void {
  if (!PACK_NAME_PATTERN.test(name)) throw new RonError('validation', 'the name of a pack matches [a-z0-9_-]{1,64}');
}

const notReady = (message: string): RonError => new RonError('not_ready', message, { retry_after_ms: RETRY_AFTER_MS });
const busy = (message: string): RonError => new RonError('busy', message, { retry_after_ms: RETRY_AFTER_MS });
