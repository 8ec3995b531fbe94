/**
 * Writes the capability files of a node's services, as the service table requires.
 *
 * Contract: with kms, capabilities are minted once kms listens; without kms, before the start. They are renewed by `renew`,
 * when kms or passport restarts, because kms with `--amnesia` has new keys then, and when the root of the keys changes.
 * Bound: `PREPARE_MS` for each renewal, and `TRIES_MAX` tries during the start. Cancellation: by the signal of each call.
 */
import { NOTHING_REVOKED, Revocations, type DerivedKeySource, type KeySource, type RevocationEpochs } from '@ron/auth';
import { askPassport } from '@ron/auth/service';
import { Deadline, idempotent, isRonError, jittered, retry } from '@ron/kernel';
import { makeDirectory } from '@ron/log';
import type { Service } from '@ron/proto';
import { messageOf } from '../../exits.ts';
import { socketUrl, type Home } from '../../home.ts';
import type { Io } from '../../io.ts';
import type { Planned } from '../plan.ts';
import type { ServiceEntry } from '../table/service-entry.ts';
import { removeUnknownCalls } from './call-capabilities.ts';
import { ownerKeys, prepareKeys, renewAll, renewByKeyFile } from './root-capability.ts';

/** Longer than kms needs to derive the keys of all capabilities. */
const PREPARE_MS = 10_000;
const TRIES_MAX = 4;

export class NodeCapabilities {
  readonly #home: Home;
  readonly #io: Pick<Io, 'note'>;
  readonly #table: readonly ServiceEntry[];
  readonly #running: readonly ServiceEntry[];
  readonly #key_service: Service | undefined;
  readonly #revocations_service: Service | undefined;
  /** The services that have listened; others have no socket yet. */
  readonly #listening = new Set<Service>();
  #keys: DerivedKeySource | undefined;

  constructor(home: Home, services: readonly Planned[], table: readonly ServiceEntry[], io: Pick<Io, 'note'>) {
    this.#home = home;
    this.#io = io;
    this.#table = table;
    this.#running = services.map(({ entry }) => entry);
    this.#key_service = this.#running.find((entry) => entry.derives_keys === true)?.name;
    this.#revocations_service = this.#running.find((entry) => entry.knows_revocations === true)?.name;
  }

  /** Called before any service is started. */
  async prepare(signal: AbortSignal): Promise<void> {
    await removeUnknownCalls(this.#home, this.#table);
    for (const { name } of this.#running) await makeDirectory(this.#home.of(name).dir);
    if (this.#key_service === undefined) await prepareKeys(this.#home, this.#table, this.#running, signal);
  }

  /** Called each time a service begins to listen. */
  async onListening(name: Service, isFirst: boolean, signal: AbortSignal): Promise<void> {
    this.#listening.add(name);
    try {
      if (this.#key_service === undefined) return;
      if (name === this.#key_service || name === this.#revocations_service) await this.#renewWithRetries(signal);
    } catch (error) {
      if (isFirst) throw error;
      this.#io.note(`failed to renew capabilities: ${messageOf(error)}`);
    }
  }

  /** On a loaded machine a service that has just started may answer too late; the start must survive that. */
  async #renewWithRetries(signal: AbortSignal): Promise<void> {
    using deadline = Deadline.after('prepare', TRIES_MAX * PREPARE_MS, { signal });
    const policy = jittered({ tries_max: TRIES_MAX, cap_ms: 1000 });
    await retry(
      idempotent('prepare', (within) => this.renew(within)),
      { policy, deadline },
    );
  }

  /** Replaces capabilities that are invalid or about to expire. */
  async renew(signal: AbortSignal): Promise<void> {
    const key_service = this.#key_service;
    if (key_service === undefined) return await renewByKeyFile(this.#home, this.#running, signal);
    if (!this.#listening.has(key_service)) return;
    using deadline = Deadline.after('prepare', PREPARE_MS, { signal });
    const { signal: within } = deadline;
    // Kept, because each derivation is an entry of the audit log.
    const keys = (this.#keys ??= ownerKeys(this.#home, key_service));
    await keys.refreshIfChanged(key_service, within);
    await renewAll(this.#home, this.#running, { keys, epochs: await this.#revoked(keys, within) }, within);
  }

  /** Renews at once if the root of the keys was rotated or retired: capabilities under it may be invalid from now on. */
  async renewIfRootChanged(signal: AbortSignal): Promise<void> {
    const key_service = this.#key_service;
    if (key_service === undefined || this.#keys === undefined) return;
    if (await this.#keys.refreshIfChanged(key_service, signal)) await this.renew(signal);
  }

  /** Zeroes the keys. */
  async close(): Promise<void> {
    await this.#keys?.close();
    this.#keys = undefined;
  }

  async #revoked(keys: KeySource, signal: AbortSignal): Promise<RevocationEpochs> {
    const audience = this.#revocations_service;
    if (audience === undefined || !this.#listening.has(audience)) return NOTHING_REVOKED;
    try {
      const revocations = new Revocations();
      const ask = askPassport({ url: socketUrl(this.#home, audience), audience, keys });
      const { document } = await ask(undefined, signal);
      if (document !== undefined) revocations.apply(document);
      return revocations;
    } catch (error) {
      // Passport runs and reports the cause itself; the other services can start. An answer that is not authentic is never
      // applied: after kms lost its root, passport has the old keys until this renewal gives it a new capability.
      if (isRonError(error, 'not_ready') || isRonError(error, 'integrity')) return NOTHING_REVOKED;
      throw error;
    }
  }
}
