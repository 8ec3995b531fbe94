/**
 * The addresses and capabilities of a node's services while it starts and runs, as the service table demands them.
 *
 * Contract: each service that listens leaves its address in a file, which is removed when the node starts anew; a caller
 * that starts earlier waits for it. With kms the capabilities are minted once kms listens, without it before the start.
 * They are renewed when kms or passport is started again, because a kms without memory has other keys, and by `renew`.
 * Bound: `PREPARE_MS` for all of them, and `TRIES_MAX` tries while the node starts. Cancellation: by the signal of each call.
 */
import { rm } from 'node:fs/promises';
import { NOTHING_REVOKED, requireDocument, Revocations, type RevocationEpochs } from '@ron/auth';
import { askPassport } from '@ron/auth/service';
import { Deadline, idempotent, isRonError, jittered, retry } from '@ron/kernel';
import { makeDirectory } from '@ron/log';
import type { Service } from '@ron/proto';
import type { Home } from '../../home.ts';
import type { Io } from '../../io.ts';
import { writeSecret } from '../../secret-file.ts';
import type { Planned } from '../plan.ts';
import type { ServiceEntry } from '../table/service-entry.ts';
import { removeUnknownCalls } from './call-capabilities.ts';
import { prepareKeys, renewByKeyFile, renewThroughKms } from './root-capability.ts';

/** Longer than kms takes for all of it. */
const PREPARE_MS = 10_000;
const TRIES_MAX = 4;

export class NodeCapabilities {
  readonly #home: Home;
  readonly #io: Pick<Io, 'note'>;
  readonly #table: readonly ServiceEntry[];
  readonly #running: readonly ServiceEntry[];
  readonly #key_service: Service | undefined;
  readonly #revocations_service: Service | undefined;
  readonly #urls: Partial<Record<Service, string>> = {};

  constructor(home: Home, services: readonly Planned[], table: readonly ServiceEntry[], io: Pick<Io, 'note'>) {
    this.#home = home;
    this.#io = io;
    this.#table = table;
    this.#running = services.map(({ entry }) => entry);
    this.#key_service = this.#running.find((entry) => entry.derives_keys === true)?.name;
    this.#revocations_service = this.#running.find((entry) => entry.knows_revocations === true)?.name;
  }

  /** Before any service is started. */
  async prepare(signal: AbortSignal): Promise<void> {
    for (const { name } of this.#table) await rm(this.#home.of(name).url, { force: true });
    await removeUnknownCalls(this.#home, this.#table);
    for (const { name } of this.#running) await makeDirectory(this.#home.of(name).dir);
    if (this.#key_service === undefined) await prepareKeys(this.#home, this.#table, this.#running, signal);
  }

  /** A service listens, for the first time or again. */
  async onListening(name: Service, url: string, isFirst: boolean, signal: AbortSignal): Promise<void> {
    this.#urls[name] = url;
    try {
      await writeSecret(this.#home.of(name).url, `${url}\n`);
      if (this.#key_service === undefined) return;
      if (name === this.#key_service || name === this.#revocations_service) await this.#renewWithRetries(signal);
    } catch (error) {
      if (isFirst) throw error;
      this.#io.note(`failed to renew capabilities: ${String(error)}`);
    }
  }

  /** On a loaded machine a service that has just started may answer too late: that must not end the start. */
  async #renewWithRetries(signal: AbortSignal): Promise<void> {
    using deadline = Deadline.after('prepare', TRIES_MAX * PREPARE_MS, { signal });
    const policy = jittered({ tries_max: TRIES_MAX, cap_ms: 1000 });
    await retry(
      idempotent('prepare', (within) => this.renew(within)),
      { policy, deadline },
    );
  }

  /** Replaces capabilities that are about to expire or no longer good. */
  async renew(signal: AbortSignal): Promise<void> {
    const key_service = this.#key_service;
    if (key_service === undefined) return await renewByKeyFile(this.#home, this.#running, signal);
    const url = this.#urls[key_service];
    if (url === undefined) return;
    using deadline = Deadline.after('prepare', PREPARE_MS, { signal });
    const epochs = await this.#revoked(deadline.signal);
    const init = { home: this.#home, key_service, url, running: this.#running, epochs };
    await renewThroughKms(init, deadline.signal);
  }

  async #revoked(signal: AbortSignal): Promise<RevocationEpochs> {
    const url = this.#revocations_service && this.#urls[this.#revocations_service];
    if (url === undefined) return NOTHING_REVOKED;
    try {
      const revocations = new Revocations();
      revocations.apply(requireDocument(await askPassport(() => Promise.resolve(url))(undefined, signal)));
      return revocations;
    } catch (error) {
      // It runs and reports the cause itself: the other services start nevertheless.
      if (isRonError(error, 'not_ready')) return NOTHING_REVOKED;
      throw error;
    }
  }
}
