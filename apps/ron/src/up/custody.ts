/**
 * Where the capabilities of a node come from while it starts and runs: from kms when it is among the services, else from a
 * key file.
 *
 * Promise: all start at once; where kms and passport listen is left in a file for the others, who wait for it if they
 * have no keys yet, and is gone when the node starts anew. A kms or passport that was started again is told to nobody: it
 * listens where it did; but a kms that remembers nothing gets its owner and services new capabilities.
 */
import { rm } from 'node:fs/promises';
import { NOTHING_REVOKED, requireDocument, Revocations, type RevocationEpochs } from '@ron/auth';
import { askPassport } from '@ron/auth/service';
import { Deadline, isRonError, makeDirectory } from '@ron/kernel';
import type { Service } from '@ron/proto';
import type { Home } from '../home.ts';
import type { Io } from '../io.ts';
import { writeSecret } from '../secret-file.ts';
import type { Planned } from './plan.ts';
import { prepareKeys, prepareThroughKms, renewCapability } from './root-capability.ts';
import type { ServiceEntry } from './services.ts';

/** Longer than kms takes for all of it. */
const PREPARE_MS = 10_000;

export class Custody {
  readonly #home: Home;
  readonly #io: Pick<Io, 'note'>;
  readonly #all: readonly Service[];
  readonly #services: readonly Service[];
  readonly #hasKms: boolean;
  readonly #urls: Partial<Record<Service, string>> = {};

  constructor(home: Home, services: readonly Planned[], table: readonly ServiceEntry[], io: Pick<Io, 'note'>) {
    this.#home = home;
    this.#io = io;
    this.#all = table.map(({ name }) => name);
    this.#services = services.map(({ entry }) => entry.name);
    this.#hasKms = services.some(({ entry }) => entry.derives_keys === true);
  }

  /** Before anything is started. */
  async prepare(signal: AbortSignal): Promise<void> {
    for (const service of this.#all) await rm(this.#home.of(service).url, { force: true });
    if (!this.#hasKms) return await prepareKeys(this.#home, this.#all, signal);
    for (const service of this.#services) await makeDirectory(this.#home.of(service).dir);
  }

  /** A service listens, for the first time or again. */
  async onListening(name: Service, url: string, isFirst: boolean, signal: AbortSignal): Promise<void> {
    this.#urls[name] = url;
    if (!this.#hasKms || (name !== 'kms' && name !== 'passport')) return;
    await writeSecret(this.#home.of(name).url, `${url}\n`);
    try {
      await this.renew(signal);
    } catch (error) {
      if (isFirst) throw error;
      this.#io.note(`capabilities could not be looked after: ${String(error)}`);
    }
  }

  /** Replaces what is about to expire or no longer good. */
  async renew(signal: AbortSignal): Promise<void> {
    if (!this.#hasKms) return await renewCapability(this.#home, this.#services, signal);
    const url = this.#urls.kms;
    if (url === undefined) return;
    using deadline = Deadline.after('prepare', PREPARE_MS, { signal });
    const init = { home: this.#home, url, audiences: this.#services, epochs: await this.#revoked(deadline.signal) };
    await prepareThroughKms(init, deadline.signal);
  }

  async #revoked(signal: AbortSignal): Promise<RevocationEpochs> {
    const url = this.#urls.passport;
    if (url === undefined) return NOTHING_REVOKED;
    try {
      const revocations = new Revocations();
      revocations.apply(requireDocument(await askPassport(() => Promise.resolve(url))(undefined, signal)));
      return revocations;
    } catch (error) {
      // It runs, and says itself why it does not know: that is no reason to start nothing.
      if (isRonError(error, 'not_ready')) return NOTHING_REVOKED;
      throw error;
    }
  }
}
