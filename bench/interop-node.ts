/**
 * A node for the interop benchmark: kms, passport, mailbox and interop as processes with keys of kms, which call each other by
 * Unix sockets, as `ron up` starts them. Storage is optional: a part may listen at its socket itself.
 */
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DerivedKeySource, mint, type MintInit } from '@ron/auth';
import { audiencePrefix } from '@ron/auth/audience-names';
import { KmsDeriver } from '@ron/auth/service';
import { InteropClient, MailboxClient } from '@ron/client';
import { reachPrivately } from '@ron/client/node';
import { scopesOf, type Service } from '@ron/proto';
import { startService, type ServiceProcess } from './servers.ts';

export type NodeService = 'kms' | 'passport' | 'storage' | 'mailbox' | 'interop';

const TTL_MS = 3_600_000;
const READY_MS_MAX = 30_000;
const POLL_MS = 20;
/** A scrape costs the service CPU time. */
const SCRAPE_MS = 100;

/** Limits per address are raised: the load generator is one address. */
export const RAISED = [
  '--server.max_inflight=4096',
  '--server.inflight_per_ip=4096',
  '--server.max_rps_per_ip=1000000',
  '--server.rps_burst_per_ip=1000000',
  '--server.connection_limit_per_ip=4096',
  '--max_conns=8192',
];

/** Rates of interop at their largest. */
export const UNLIMITED = [
  ...RAISED,
  '--server.max_rps=1000000',
  '--server.rps_burst=1000000',
  '--webhooks.address_rps=1000000',
];

export const PROVIDER = 'github';
export const SECRET = 'the secret of the benchmark';
export const TOPIC = `hooks.${PROVIDER}`;

/** The value of a series; 0 if it does not exist. */
export type Metrics = (series: string) => number;

export class InteropNode implements AsyncDisposable {
  readonly dir: string;
  readonly #services = new Map<NodeService, ServiceProcess>();
  #keys: DerivedKeySource | undefined;

  private constructor(dir: string) {
    this.dir = dir;
  }

  /** Starts kms and writes the capabilities; start the other services after it. */
  static async open(dir: string): Promise<InteropNode> {
    const node = new InteropNode(dir);
    try {
      await node.start('kms');
      await node.#untilKeys();
      await node.#writeCapabilities();
    } catch (error) {
      await node[Symbol.asyncDispose]();
      throw error;
    }
    return node;
  }

  get(name: NodeService): ServiceProcess {
    const service = this.#services.get(name);
    if (service === undefined) throw new Error(`${name} does not run`);
    return service;
  }

  async start(name: NodeService, flags: readonly string[] = []): Promise<ServiceProcess> {
    const service = await startService(name, {}, [...this.#flagsOf(name), ...flags]);
    this.#services.set(name, service);
    return service;
  }

  async stop(name: NodeService, signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const { child } = this.get(name);
    this.#services.delete(name);
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }

  /** Waits for the gates of a service. */
  async untilReady(name: NodeService): Promise<void> {
    const url = `http://127.0.0.1:${this.get(name).port}/readyz`;
    for (const end = performance.now() + READY_MS_MAX; (await statusOf(url)) !== 200; await sleep(POLL_MS))
      if (performance.now() > end) throw new Error(`${name} did not become ready`);
  }

  async metrics(name: NodeService): Promise<Metrics> {
    const text = await (await fetch(`http://127.0.0.1:${this.get(name).port}/metrics`)).text();
    const values = new Map(
      text.split('\n').map((line) => [line.slice(0, line.lastIndexOf(' ')), line.slice(line.lastIndexOf(' ') + 1)]),
    );
    return (series) => Number(values.get(series) ?? 0);
  }

  /** Waits until the condition on the metrics of interop holds. */
  async until(what: string, ms_max: number, holds: (metrics: Metrics) => boolean): Promise<void> {
    for (const end = performance.now() + ms_max; !holds(await this.metrics('interop')); await sleep(SCRAPE_MS))
      if (performance.now() > end) throw new Error(`not within ${ms_max} ms: ${what}`);
  }

  async token(audience: Service, init: Partial<MintInit> = {}): Promise<string> {
    this.#keys ??= new DerivedKeySource({
      deriver: new KmsDeriver({ url: this.socketOf('kms'), capability: () => Promise.resolve(this.#owner()) }),
    });
    const { signal } = new AbortController();
    return (await mint(this.#keys, { audience, scopes: scopesOf(audience), ttl_ms: TTL_MS, ...init }, signal)).token;
  }

  async admin(): Promise<InteropClient> {
    return new InteropClient({ ...reachPrivately(this.socketOf('interop')), capability: await this.token('interop') });
  }

  async mailbox(): Promise<MailboxClient> {
    return new MailboxClient({ ...reachPrivately(this.socketOf('mailbox')), capability: await this.token('mailbox') });
  }

  /** Starts interop with the provider whose webhooks the generator sends, with its limits at their largest. */
  async startInterop(flags: readonly string[]): Promise<void> {
    await this.start('interop', flags);
    await this.untilReady('interop');
    const limits = { rps: 10_000, inflight: 1024 };
    await (await this.admin()).putProvider(PROVIDER, { scheme: 'github', secret: SECRET, limits });
  }

  socketPath(name: NodeService): string {
    return join(this.dir, `${name}.sock`);
  }

  socketOf(name: NodeService): string {
    return `unix:${this.socketPath(name)}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const name of [...this.#services.keys()].toReversed()) await this.stop(name);
  }

  /** The first derivation of a new kms may take longer than its deadline on a busy machine. */
  async #untilKeys(): Promise<void> {
    for (const end = performance.now() + READY_MS_MAX; ; await sleep(POLL_MS)) {
      try {
        await this.token('kms');
        return;
      } catch (error) {
        if (performance.now() > end) throw error;
      }
    }
  }

  #owner(): string {
    return readFileSync(this.#file('owner'), 'utf8').trim();
  }

  #file(name: string): string {
    return join(this.dir, `${name}.cap`);
  }

  async #write(name: string, token: Promise<string>): Promise<void> {
    writeFileSync(this.#file(name), `${await token}\n`, { mode: 0o600 });
  }

  async #writeCapabilities(): Promise<void> {
    const calls = {
      mailbox: { scopes: ['mailbox:send'], caveats: ['name ^= hooks.'] },
      kms: { scopes: ['kms:create', 'kms:wrap', 'kms:unwrap', 'kms:sign', 'kms:read'], caveats: ['tenant = interop'] },
      passport: { scopes: ['passport:exchange'], caveats: [] },
    } as const;
    for (const to of ['mailbox', 'kms', 'passport'] as const) {
      await this.#write(`interop-${to}`, this.token(to, { ...calls[to], subject: 'svc-interop' }));
    }
    await this.#write('passport-log', this.token('kms', { scopes: ['kms:log'], subject: 'svc-passport' }));
    for (const name of ['passport', 'storage', 'mailbox', 'interop'] as const) {
      const label = name === 'passport' ? 'audience/' : audiencePrefix(name);
      const derives = { scopes: ['kms:audience'], caveats: [`label ^= ${label}`], subject: `svc-${name}` } as const;
      await this.#write(`${name}-keys`, this.token('kms', derives));
    }
  }

  #flagsOf(name: NodeService): string[] {
    const data = join(this.dir, name);
    const shared = [
      `--server.socket=${this.socketPath(name)}`,
      '--server.bind=127.0.0.1:0',
      name === 'storage' ? `--data_dirs=${data}` : `--data_dir=${data}`,
      '--log.level=error',
    ];
    if (name === 'kms') return [...shared, `--auth.owner_file=${this.#file('owner')}`];
    const calling = [
      ...shared,
      `--auth.kms_url=${this.socketOf('kms')}`,
      `--auth.capability_file=${this.#file(`${name}-keys`)}`,
      `--auth.cache_file=${join(this.dir, `${name}.cache`)}`,
      name === 'passport'
        ? `--passport.log_capability_file=${this.#file('passport-log')}`
        : `--auth.passport_url=${this.socketOf('passport')}`,
    ];
    if (name !== 'interop') return calling;
    return [
      ...calling,
      `--interop.mailbox_url=${this.socketOf('mailbox')}`,
      `--interop.mailbox_capability_file=${this.#file('interop-mailbox')}`,
      `--interop.storage_url=${this.socketOf('storage')}`,
      `--interop.kms_capability_file=${this.#file('interop-kms')}`,
      `--interop.passport_capability_file=${this.#file('interop-passport')}`,
    ];
  }
}

const statusOf = async (url: string): Promise<number> => {
  const answer = await fetch(url);
  await answer.arrayBuffer();
  return answer.status;
};
