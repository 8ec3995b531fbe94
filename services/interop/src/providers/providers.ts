/**
 * The providers of webhooks and their secrets.
 *
 * Contract: a change is durable before it is answered and before it takes effect. [interop I-2] One change runs at a time; requests
 * read a snapshot. A change that the disk refused has no effect in this process, but may have one after the next start: its error
 * says so. Two secrets are live at most: a third is refused until one has ended, unless it ends the others at once.
 * A provider whose file, or none of whose secrets, can be used is closed; the others are not affected. In amnesia nothing is written.
 * Bound: `INTEROP_LIMITS.providers`; `WAITING_MAX` changes wait. Overflow: `storage_full`, `busy`.
 * Cancellation: a change whose signal aborts before its write begins is not applied.
 */
import { isRonError, Mutex, Notify, RonError, sched, type Broadcast } from '@ron/kernel';
import {
  INTEROP_LIMITS,
  type Descriptor,
  type ProviderRequest,
  type RotateRequest,
  type WebhookProviderDto,
} from '@ron/proto';
import type { InteropEvent } from '../events.ts';
import { keyOfSecret, parseSecret, type SecretBytes } from '../signatures/secret-text.ts';
import { requireDescriptor } from './descriptor.ts';
import type { ProviderFiles } from './files/provider-files.ts';
import type { ProviderSecrets } from './secrets/provider-secrets.ts';
import { unknownProvider, type Provider, type ProviderTable } from './provider-table.ts';
import { ProviderView } from './provider-view.ts';
import { refreshSecrets } from './secrets/secret-refresh.ts';
import type { StoredSecret } from './files/stored-provider.ts';

export type { Provider } from './provider-table.ts';

export interface ProvidersInit {
  readonly files: ProviderFiles;
  readonly secrets: ProviderSecrets;
  readonly table: ProviderTable;
  readonly events: Pick<Broadcast<InteropEvent>, 'publish'>;
  /** Called for a removed provider, so that its counters are forgotten. */
  readonly onRemoved: (provider: string) => void;
}

const WAITING_MAX = 64;

export class Providers implements AsyncDisposable {
  readonly #init: ProvidersInit;
  readonly #files: ProviderFiles;
  readonly #secrets: ProviderSecrets;
  readonly #view: ProviderView;
  readonly #changes = new Mutex('providers', { waiters_max: WAITING_MAX });
  /** Notified after each change. */
  readonly changed = new Notify('providers');

  constructor(init: ProvidersInit) {
    this.#init = init;
    this.#files = init.files;
    this.#secrets = init.secrets;
    this.#view = new ProviderView(init);
  }

  get(name: string): Provider | undefined {
    return this.#view.get(name);
  }

  list(): readonly WebhookProviderDto[] {
    return this.#view.list();
  }

  describe(name: string): WebhookProviderDto {
    const described = this.#view.describe(name);
    if (described === undefined) throw unknownProvider();
    return described;
  }

  get problem(): string | undefined {
    return this.#view.problem;
  }

  due(): readonly string[] {
    return this.#view.due();
  }

  get next_end_ms(): number {
    return this.#view.next_end_ms;
  }

  /** Adds a provider, or replaces one. Without a secret it keeps its secrets; a new secret ends all others at once. */
  async put(
    name: string,
    request: ProviderRequest,
    signal: AbortSignal,
  ): Promise<{ readonly created: boolean; readonly provider: WebhookProviderDto }> {
    const { secret: text, ...init } = request;
    const descriptor = requireDescriptor(name, init);
    using secret = text === undefined ? undefined : zeroed(parseSecret(descriptor.scheme, text));
    return await this.#changes.run(signal, async () => {
      const created = !this.#files.states.has(name);
      if (created) this.#requireRoom();
      if (secret === undefined || this.#isOnlySecret(descriptor, secret)) await this.#keepSecrets(descriptor, signal);
      else await this.#addSecret(descriptor, [], secret, signal);
      await this.#files.confirm(name);
      return { created, provider: this.#applied(name, created ? 'added' : 'replaced') };
    });
  }

  /** Adds a secret. The previous one ends after the overlap, at once if it is 0. */
  async rotate(name: string, request: RotateRequest, signal: AbortSignal): Promise<WebhookProviderDto> {
    const { secret: text, overlap_ms = INTEROP_LIMITS.overlap_ms } = request;
    const { scheme } = this.#view.require(name).descriptor;
    using secret = zeroed(parseSecret(scheme, text));
    return await this.#changes.run(signal, async () => {
      const { descriptor } = this.#view.require(name);
      if (descriptor.scheme !== scheme)
        throw new RonError('conflict', 'the scheme was changed by another request: try again');
      const live = this.#view.liveOf(name);
      const key = keyOfSecret(secret);
      if (live.some(({ version }) => this.#secrets.key(name, version)?.equals(key)))
        throw new RonError('conflict', 'the secret is live already: rotate to another one');
      await this.#addSecret(descriptor, overlapping(live, overlap_ms), secret, signal);
      await this.#files.confirm(name);
      return this.#applied(name, 'rotated');
    });
  }

  async remove(name: string, signal: AbortSignal): Promise<void> {
    await this.#changes.run(signal, async () => {
      if (!this.#files.states.has(name)) throw unknownProvider();
      await this.#files.remove(name, signal);
      this.#view.forget(name);
      this.#init.onRemoved(name);
      this.#init.events.publish({ kind: 'provider changed', provider: name, change: 'removed' });
    });
  }

  /**
   * Removes ended secrets, loads missing ones, and stores them as configured. A secret that fails does not keep back the other one.
   * Throws if kms or the disk is away.
   */
  async reconcile(name: string, signal: AbortSignal): Promise<void> {
    await this.#changes.run(signal, async () => {
      const state = this.#files.states.get(name);
      if (state === undefined || !('stored' in state)) return;
      const { descriptor, secrets } = state.stored;
      try {
        const { wanted, failure } = await this.#reconciled(name, signal);
        const isSame = wanted.length === secrets.length && wanted.every((secret, at) => secret === secrets[at]);
        if (!isSame) await this.#files.commit(name, { descriptor, secrets: wanted }, signal);
        if (failure !== undefined) throw failure;
      } catch (error) {
        signal.throwIfAborted();
        this.#view.explain(name, isRonError(error) ? error.message : 'unknown error');
        throw error;
      } finally {
        this.#view.refresh(name);
      }
    });
  }

  /** The live secrets, loaded and in the forms that the configuration requires; one that fails is kept as it is. */
  async #reconciled(
    name: string,
    signal: AbortSignal,
  ): Promise<{ readonly wanted: readonly StoredSecret[]; readonly failure: unknown }> {
    const sealer = await this.#files.sealer(name, signal);
    const wanted: StoredSecret[] = [];
    let failure: unknown;
    for (const secret of this.#view.liveOf(name)) {
      try {
        wanted.push(await this.#secrets.reconcile(name, secret, sealer, signal));
      } catch (error) {
        signal.throwIfAborted();
        failure ??= error;
        wanted.push(secret);
      }
    }
    return { wanted, failure };
  }

  /** The task `secret_refresh`. */
  run(stopping: AbortSignal): Promise<void> {
    return refreshSecrets(this, stopping);
  }

  /** [interop I-11] Waits for the change that is being written. */
  async close(): Promise<void> {
    await this.#changes.close();
    await this.#files.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #requireRoom(): void {
    const { providers } = INTEROP_LIMITS;
    if (this.#files.states.size >= providers)
      throw new RonError('storage_full', `there are ${providers} providers, which is the limit: remove one`);
  }

  /** Whether the secret is the only live one: a repeated request does not make a new version of it. */
  #isOnlySecret({ name, scheme }: Descriptor, secret: SecretBytes): boolean {
    const [newest, older] = this.#view.liveOf(name);
    if (newest === undefined || older !== undefined || this.#view.require(name).descriptor.scheme !== scheme)
      return false;
    return this.#secrets.key(name, newest.version)?.equals(keyOfSecret(secret)) === true;
  }

  async #keepSecrets(descriptor: Descriptor, signal: AbortSignal): Promise<void> {
    const { name, scheme } = descriptor;
    const state = this.#files.states.get(name);
    if (state === undefined) throw new RonError('validation', 'a new provider needs a secret');
    if (!('stored' in state))
      throw new RonError('validation', 'the secrets of the provider are lost: it needs a new one');
    if (state.stored.descriptor.scheme !== scheme)
      throw new RonError('validation', 'another scheme needs a new secret');
    await this.#files.commit(name, { descriptor, secrets: this.#view.liveOf(name) }, signal);
  }

  async #addSecret(
    descriptor: Descriptor,
    older: readonly StoredSecret[],
    secret: SecretBytes,
    signal: AbortSignal,
  ): Promise<void> {
    const { name } = descriptor;
    const version = this.#files.nextSecretVersion(name);
    // First: if kms is away, no file is touched.
    const wrapped = await this.#secrets.wrap(name, version, secret.bytes, signal);
    try {
      const forms = this.#secrets.forms(await this.#files.sealer(name, signal), version, secret.bytes, wrapped);
      const added: StoredSecret = { version, kind: secret.kind, created_ms: sched.wall_ms(), ...forms };
      await this.#files.commit(name, { descriptor, secrets: [added, ...older] }, signal);
    } catch (error) {
      await this.#files.discard(name);
      throw error;
    }
    this.#secrets.hold(name, version, secret);
  }

  /** Publishes a committed change. */
  #applied(name: string, change: string): WebhookProviderDto {
    this.#view.refresh(name);
    this.#init.events.publish({ kind: 'provider changed', provider: name, change });
    this.changed.notifyOne();
    return this.describe(name);
  }
}

/** The secrets that stay live beside a new one. */
function overlapping(live: readonly StoredSecret[], overlap_ms: number): readonly StoredSecret[] {
  if (overlap_ms === 0) return [];
  const [newest, oldest] = live;
  if (oldest?.ends_ms !== undefined) {
    const end = new Date(oldest.ends_ms).toISOString();
    throw new RonError(
      'conflict',
      `two secrets are live, and version ${oldest.version} ends at ${end}: wait, or end both with an overlap of 0`,
    );
  }
  return newest === undefined ? [] : [{ ...newest, ends_ms: sched.wall_ms() + overlap_ms }];
}

/** The bytes are zeroed at the end of the block. */
function zeroed(secret: SecretBytes): SecretBytes & Disposable {
  return { ...secret, [Symbol.dispose]: () => void secret.bytes.fill(0) };
}
