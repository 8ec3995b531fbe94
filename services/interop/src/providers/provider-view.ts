/**
 * The state of each provider, from its file and its keys, and the snapshot of it that requests read.
 *
 * Contract: `refresh` publishes a provider as its file and its keys are in that step. A provider is closed while none of its live
 * secrets is loaded: its deliveries would be refused as forged. One with a loaded secret is open; its description and `problem`
 * name each secret that is not loaded. A description holds no secret.
 * Bound: one entry for each provider.
 */
import { RonError, sched, type Broadcast } from '@ron/kernel';
import type { SecretDto, WebhookProviderDto } from '@ron/proto';
import type { InteropEvent } from '../events.ts';
import type { ClosedFile, FileState, ProviderFiles } from './files/provider-files.ts';
import type { ProviderSecrets } from './secrets/provider-secrets.ts';
import { unknownProvider, type Provider, type ProviderTable } from './provider-table.ts';
import { hasEnded, type StoredProvider, type StoredSecret } from './files/stored-provider.ts';

export interface ProviderViewInit {
  readonly files: ProviderFiles;
  readonly secrets: ProviderSecrets;
  readonly table: ProviderTable;
  readonly events: Pick<Broadcast<InteropEvent>, 'publish'>;
}

const NOT_UNWRAPPED = 'its secrets are not unwrapped yet';
const SECRET_NOT_UNWRAPPED = 'it is not unwrapped yet';

export class ProviderView {
  readonly #files: ProviderFiles;
  readonly #secrets: ProviderSecrets;
  readonly #table: ProviderTable;
  readonly #events: Pick<Broadcast<InteropEvent>, 'publish'>;
  /** Why secrets could not be unwrapped, by provider. For the operator. */
  readonly #details = new Map<string, string>();

  /** Publishes all providers whose secrets open without kms. */
  constructor({ files, secrets, table, events }: ProviderViewInit) {
    this.#files = files;
    this.#secrets = secrets;
    this.#table = table;
    this.#events = events;
    for (const name of files.states.keys()) this.#load(name);
    const problem = this.#unconfirmed;
    if (problem !== undefined) events.publish({ kind: 'providers unconfirmed', problem });
  }

  get(name: string): Provider | undefined {
    return this.#table.get(name);
  }

  list(): readonly WebhookProviderDto[] {
    return [...this.#files.states.keys()].toSorted().map((name) => this.describe(name)!);
  }

  describe(name: string): WebhookProviderDto | undefined {
    const state = this.#files.states.get(name);
    const provider = this.#table.get(name);
    if (state === undefined || provider === undefined) return undefined;
    const detail = 'closed' in state ? state.closed.detail : this.#details.get(name);
    const problem = provider.problem === undefined ? undefined : withDetail(provider.problem, detail);
    const secrets = this.liveOf(name).map((secret) => this.#secretDto(name, secret));
    return { ...provider.descriptor, secrets, ...(problem !== undefined && { problem }) };
  }

  /** Why the gate `providers` is closed. */
  get problem(): string | undefined {
    const closed = this.#table.closed();
    const [first] = closed;
    if (first === undefined) return this.#notLoaded ?? this.#unconfirmed;
    return closed.length === 1
      ? `the provider ${first} is closed`
      : `${closed.length} providers are closed, such as ${first}`;
  }

  /** A live secret of an open provider: deliveries that it signed are refused as forged. */
  get #notLoaded(): string | undefined {
    for (const name of this.#files.states.keys()) {
      const secret = this.liveOf(name).find(({ version }) => this.#secrets.key(name, version) === undefined);
      if (secret !== undefined) return `the secret v${secret.version} of ${name} is not unwrapped yet`;
    }
    return undefined;
  }

  /** The providers are open: their webhooks are worth more than the chance that a file is old. */
  get #unconfirmed(): string | undefined {
    const names = this.#files.unconfirmed;
    const [first] = names;
    if (first === undefined) return undefined;
    const which =
      names.length === 1 ? `the file of ${first}` : `the files of ${names.length} providers, such as ${first},`;
    return `the catalog of providers was missing or damaged: ${which} may be old: check them and rotate their secrets`;
  }

  /** The newest first. */
  liveOf(name: string): readonly StoredSecret[] {
    const wall_ms = sched.wall_ms();
    return secretsOf(this.#files.states.get(name)).filter((secret) => !hasEnded(secret, wall_ms));
  }

  /** Throws unless the provider exists and its file can be used. */
  require(name: string): StoredProvider {
    const state = this.#files.states.get(name);
    if (state === undefined) throw unknownProvider();
    if ('stored' in state) return state.stored;
    const { problem } = state.closed;
    throw new RonError('conflict', `the provider is closed: ${problem}; set it again with a secret, or remove it`);
  }

  /** Providers with a secret that has ended, is not loaded, or is not stored as configured. */
  due(): string[] {
    const wall_ms = sched.wall_ms();
    return [...this.#files.states].flatMap(([name, state]) => {
      const isDue = (secret: StoredSecret): boolean =>
        hasEnded(secret, wall_ms) ||
        this.#secrets.key(name, secret.version) === undefined ||
        !this.#secrets.isAsConfigured(secret);
      return secretsOf(state).some(isDue) ? [name] : [];
    });
  }

  /** When the next secret ends; Infinity if none does. */
  get next_end_ms(): number {
    const ends = [...this.#files.states.values()].flatMap(secretsOf).flatMap(({ ends_ms }) => ends_ms ?? []);
    return Math.min(...ends);
  }

  /** States why a secret of a provider is not loaded. Shown until all of them are. */
  explain(name: string, detail: string): void {
    this.#details.set(name, detail);
  }

  refresh(name: string): void {
    const state = this.#files.states.get(name)!;
    if ('stored' in state) this.#refreshStored(state.stored);
    else this.#refreshClosed(name, state.closed);
  }

  forget(name: string): void {
    this.#table.delete(name);
    this.#secrets.keepOnly(name, []);
    this.#details.delete(name);
  }

  #load(name: string): void {
    const sealer = this.#files.sealerNow(name);
    try {
      if (sealer !== undefined) for (const secret of this.liveOf(name)) this.#secrets.load(name, secret, sealer);
    } catch {
      this.explain(name, 'the sealed copy of a secret does not open');
    }
    this.refresh(name);
  }

  #refreshStored({ descriptor, incarnation }: StoredProvider): void {
    const { name } = descriptor;
    const before = this.#table.get(name)?.problem;
    const live = this.liveOf(name);
    const versions = live.map(({ version }) => version);
    this.#secrets.keepOnly(name, versions);
    const loaded = live.flatMap(({ version, kind, ends_ms = Infinity }) => {
      const key = this.#secrets.key(name, version);
      return key === undefined ? [] : [{ version, kind, key, ends_ms }];
    });
    const problem = loaded.length === 0 && live.length > 0 ? NOT_UNWRAPPED : undefined;
    this.#table.set(descriptor, { incarnation, secrets: loaded, problem }, versions);
    if (problem === before) return;
    if (problem === undefined) this.#events.publish({ kind: 'provider changed', provider: name, change: 'opened' });
    else
      this.#events.publish({
        kind: 'provider closed',
        provider: name,
        problem: withDetail(problem, this.#details.get(name)),
      });
  }

  #refreshClosed(name: string, { descriptor, problem, detail }: ClosedFile): void {
    this.#table.set(descriptor, { incarnation: 0, secrets: [], problem }, []);
    this.#events.publish({ kind: 'provider closed', provider: name, problem: withDetail(problem, detail) });
  }

  #secretDto(name: string, { version, kind, created_ms, ends_ms }: StoredSecret): SecretDto {
    return {
      version,
      kind,
      created_ms,
      ...(ends_ms !== undefined && { ends_ms }),
      ...this.#table.useOf(name, version),
      ...(this.#secrets.key(name, version) === undefined && {
        problem: withDetail(SECRET_NOT_UNWRAPPED, this.#details.get(name)),
      }),
    };
  }
}

const secretsOf = (state: FileState | undefined): readonly StoredSecret[] =>
  state !== undefined && 'stored' in state ? state.stored.secrets : [];

const withDetail = (problem: string, detail: string | undefined): string =>
  detail === undefined ? problem : `${problem}: ${detail}`;
