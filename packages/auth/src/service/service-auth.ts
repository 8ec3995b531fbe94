/**
 * Capability checks for a service: keys, revocations, and the two tasks that refresh them.
 *
 * Contract: with kms, the keys are derived by kms and stored in a sealed file, so the service starts even if kms is
 * down; in amnesia nothing is stored. Without kms they come from a file, which the log, `/version` and `/readyz` report.
 * A service without keys starts, is not ready, and reports the reason.
 * Bound: `start_ms` at the start, and only if no keys are known.
 * Cancellation: the signal of the start; `close`.
 */
import { join } from 'node:path';
import { openUnlock, type Unlock } from '@ron/custody/sealed';
import { Deadline, sleep, untilAborted } from '@ron/kernel';
import { type Log, type Metrics } from '@ron/telemetry';
import { readSecretFile, realFileSystem, type FileSystem } from '@ron/log';
import type { Service } from '@ron/proto';
import { DerivedKeySource, type KeyDeriver, type RunInit } from '../keys/derived-keys.ts';
import { NOTHING_REVOKED, type RevocationEpochs } from '../revocations/epochs.ts';
import { FileKeySource, MemoryKeySource, type KeySource } from '../keys/key-source.ts';
import type { AuthConfig } from './auth-keys.ts';
import { measureKeys, measureRevocations } from './auth-metrics.ts';
import { KmsDeriver } from './kms-deriver.ts';
import { askPassport, RevocationWatch } from './revocation-watch.ts';
import { SealedCache } from './sealed-cache.ts';

const START_MS = 10_000;
const START_PAUSE_MS = 50;

export type KeyOrigin = 'kms' | 'file' | 'memory';

export interface ServiceAuthInit {
  readonly audience: Service;
  readonly config: { readonly auth: Partial<AuthConfig>; readonly amnesia: { readonly enabled: boolean } };
  /** The data directory of the service; undefined in amnesia. */
  readonly dir: string | undefined;
  /** Kms holds the root itself. Default: queries kms over HTTP. */
  readonly deriver?: KeyDeriver | undefined;
  /** Seals the cache. Default: from the environment, or a key next to it. */
  readonly unlock?: Unlock | undefined;
  readonly fs?: FileSystem | undefined;
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** How long a start without keys waits for kms, which may be starting too. Default 10 000; 0 for kms itself. */
  readonly start_ms?: number;
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** Default: no metrics. */
  readonly metrics?: Metrics | undefined;
  /** Whether there are marks to store, which need the sealed file even if the keys are elsewhere. Default false. */
  readonly keepsMarks?: boolean;
  readonly signal: AbortSignal;
}

/** The part of a readiness report that is filled in here. */
export interface ReadinessLike {
  gate(name: string, init: { kind: 'hard' | 'soft'; sample: () => string | undefined }): unknown;
  tell(fact: string, sample: () => string): void;
}

export class ServiceAuth implements AsyncDisposable {
  readonly keys: KeySource;
  readonly origin: KeyOrigin;
  readonly #audience: Service;
  readonly #cache: SealedCache | undefined;
  readonly #watch: RevocationWatch | undefined;

  constructor(
    audience: Service,
    keys: KeySource,
    origin: KeyOrigin,
    cache: SealedCache | undefined,
    watch: RevocationWatch | undefined,
  ) {
    this.keys = keys;
    this.origin = origin;
    this.#audience = audience;
    this.#cache = cache;
    this.#watch = watch;
  }

  get epochs(): RevocationEpochs {
    return this.#watch ?? NOTHING_REVOKED;
  }

  /** A version number that is stored apart from its data, so that an outdated copy of the data is detected. */
  mark(name: string): number | undefined {
    return this.#cache?.mark(name);
  }

  /** Stores it; no effect in amnesia. */
  async setMark(name: string, value: number, signal: AbortSignal): Promise<void> {
    await this.#cache?.saveMark(name, value, signal);
  }

  /** Adds gates and facts to `/readyz`. */
  report(readiness: ReadinessLike): void {
    const { keys } = this;
    readiness.tell('capability_keys', () => this.origin);
    if (keys instanceof DerivedKeySource) {
      const missing = (): string | undefined =>
        keys.has(this.#audience) ? undefined : `no keys from kms yet: ${keys.problem(this.#audience) ?? 'not queried'}`;
      readiness.gate('capability_keys', { kind: 'hard', sample: missing });
      readiness.gate('kms', { kind: 'soft', sample: () => keys.problem(this.#audience) });
    }
    const watch = this.#watch;
    if (watch !== undefined) readiness.gate('revocations', { kind: 'soft', sample: () => watch.problem });
  }

  /** A task: polls kms for the keys. Idle without kms. */
  async refreshKeys(refresh_ms: () => number, stopping: AbortSignal, init: RunInit = {}): Promise<void> {
    if (this.keys instanceof DerivedKeySource) return await this.keys.run(this.#audience, refresh_ms, stopping, init);
    await untilAborted(stopping);
  }

  /** A task: polls passport for revocations. Idle without passport. */
  async watchRevocations(stopping: AbortSignal): Promise<void> {
    if (this.#watch !== undefined) return await this.#watch.run(stopping);
    await untilAborted(stopping);
  }

  async close(): Promise<void> {
    await this.keys.close();
    await this.#cache?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

export async function openServiceAuth(init: ServiceAuthInit): Promise<ServiceAuth> {
  const { audience, config, deriver, log, metrics } = init;
  const { kms_url, passport_pin, passport_url, revocations_max_age } = config.auth;
  const isDerived = config.auth.key_file === undefined && (deriver !== undefined || kms_url !== undefined);
  const isKept = isDerived || passport_url !== undefined || init.keepsMarks === true;
  const cache = isKept ? await openCache(init) : undefined;
  try {
    const keys = isDerived ? await derivedKeys(init, cache) : await plainKeys(init);
    const origin = isDerived ? 'kms' : keys instanceof FileKeySource ? 'file' : 'memory';
    if (origin === 'file') log.warn('capabilities are checked with keys from a file: there is no kms to derive them');
    const watch =
      passport_url === undefined
        ? undefined
        : new RevocationWatch({
            ask: askPassport({ url: passport_url, pin: passport_pin, audience, keys }),
            known: cache?.revocations,
            keep: cache && ((document, signal) => cache.saveRevocations(document, signal)),
            max_age_ms: revocations_max_age,
            onProblem: (error) => log.warn({ err: error }, 'failed to get revocations from passport'),
          });
    if (metrics !== undefined) measureKeys(metrics, audience, keys);
    if (metrics !== undefined && watch !== undefined) measureRevocations(metrics, watch);
    return new ServiceAuth(audience, keys, origin, cache, watch);
  } catch (error) {
    await cache?.close();
    throw error;
  }
}

async function derivedKeys(init: ServiceAuthInit, cache: SealedCache | undefined): Promise<DerivedKeySource> {
  const { audience, config, log, signal } = init;
  const { kms_pin, kms_url, capability_file } = config.auth;
  const capability = (): Promise<string> => readSecretFile(capability_file!);
  const keys = new DerivedKeySource({
    deriver: init.deriver ?? new KmsDeriver({ url: kms_url!, pin: kms_pin, capability }),
    cache,
    onCacheProblem: (error) => log.warn({ err: error }, 'failed to store the capability keys for the next start'),
  });
  // The holder of the root does not need keys of an earlier run.
  if (keys.has(audience) && init.deriver === undefined) return keys;
  const { start_ms = init.deriver === undefined ? START_MS : 0 } = init;
  const error = await firstKeys(keys, audience, start_ms, signal);
  if (error !== undefined) log.warn({ err: error }, 'no capability keys from kms yet');
  return keys;
}

/** Polls until there are keys: kms may be starting too. Returns the last error if the time runs out. */
async function firstKeys(
  keys: DerivedKeySource,
  audience: Service,
  wait_ms: number,
  signal: AbortSignal,
): Promise<unknown> {
  using start = Deadline.after('derive', wait_ms, { signal });
  for (;;) {
    try {
      await keys.refresh(audience, signal);
      return undefined;
    } catch (error) {
      signal.throwIfAborted();
      if (start.remaining_ms <= START_PAUSE_MS) return error;
      await sleep(START_PAUSE_MS, signal, 'first_keys');
    }
  }
}

/** A file next to the data; in amnesia, memory only. */
async function plainKeys({ config, dir, signal }: ServiceAuthInit): Promise<KeySource> {
  const path = config.auth.key_file ?? (dir === undefined ? undefined : join(dir, 'keys'));
  if (path === undefined) return new MemoryKeySource();
  return await FileKeySource.open({ path, create: !config.amnesia.enabled }, signal);
}

async function openCache(init: ServiceAuthInit): Promise<SealedCache | undefined> {
  const { config, dir, env = process.env, fs = realFileSystem, log, signal } = init;
  if (config.amnesia.enabled) return undefined;
  const path = config.auth.cache_file ?? (dir === undefined ? undefined : join(dir, 'auth', 'cache'));
  if (path === undefined) return undefined;
  const warn = (what: string): void => log.warn(what);
  const unlock = init.unlock ?? (await openUnlock({ dir: join(path, '..'), env, fs, warn }));
  return await SealedCache.open({ path, unlock, fs, signal });
}
