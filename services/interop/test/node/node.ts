/**
 * A node of real services: kms, passport, storage, mailbox and interop, which call each other by Unix sockets, with keys that
 * kms derives, as `ron up` starts them. Each is a process, which can be killed and started again with its data, or runs inside
 * the process of the test.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DerivedKeySource, mint, type MintInit } from '@ron/auth';
import { audiencePrefix } from '@ron/auth/audience-names';
import { KmsDeriver } from '@ron/auth/service';
import { InteropClient, KmsClient, MailboxClient } from '@ron/client';
import { reachPrivately } from '@ron/client/node';
import { NEVER } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { scopesOf, type Service } from '@ron/proto';
import { eventually, tempDir, type After } from '@ron/testkit';
import { send, ServiceProcess, type Reply, type SendInit, type ServiceProcessInit } from '@ron/testkit/service';
import type { Interop } from '../../src/service.ts';
import { startInside, type InsideService } from './inside.ts';

export const NODE_SERVICES = ['kms', 'passport', 'storage', 'mailbox', 'interop'] as const;
export type NodeService = (typeof NODE_SERVICES)[number];

const TTL_MS = 3_600_000;

export interface TestNodeInit {
  /** Default: all. */
  readonly services?: readonly NodeService[];
  /** Further flags of a service. */
  readonly flags?: Partial<Record<NodeService, readonly string[]>>;
  readonly amnesia?: boolean;
  /** Services that run in the process of the test. Default: none. */
  readonly inside?: readonly NodeService[];
  /** The file system of interop, if it runs inside. */
  readonly fs?: FileSystem;
  /** Called when a critical task of interop stays down, if it runs inside. */
  readonly onFatal?: (kind: string) => void;
  /** How the process of a service is started. */
  readonly process?: Partial<Record<NodeService, Partial<ServiceProcessInit>>>;
}

export class TestNode {
  readonly dir: string;
  readonly #init: TestNodeInit;
  readonly #processes = new Map<NodeService, ServiceProcess>();
  readonly #inside = new Map<NodeService, InsideService>();
  #keys: DerivedKeySource | undefined;

  private constructor(dir: string, init: TestNodeInit) {
    this.dir = dir;
    this.#init = init;
  }

  static async start(t: After, init: TestNodeInit = {}): Promise<TestNode> {
    const temp = await tempDir();
    const node = new TestNode(temp.path, init);
    t.after(async () => {
      for (const name of NODE_SERVICES.toReversed()) await node.kill(name);
      await temp[Symbol.asyncDispose]();
    });
    await node.start('kms');
    await node.#writeCapabilities();
    for (const name of init.services ?? NODE_SERVICES) if (name !== 'kms') await node.start(name);
    return node;
  }

  process(name: NodeService): ServiceProcess {
    const process = this.#processes.get(name);
    if (process === undefined) throw new Error(`${name} does not run`);
    return process;
  }

  /** Interop, if it runs inside. */
  get interop(): Interop {
    const { interop } = this.#insideOf('interop');
    return interop!;
  }

  get url(): string {
    return this.#inside.get('interop')?.url ?? this.process('interop').url;
  }

  /** The log of a service that runs inside. */
  linesOf(name: NodeService): readonly string[] {
    return this.#insideOf(name).lines;
  }

  /** A request to the TCP listener of interop. */
  send(method: string, path: string, init?: SendInit): Promise<Reply> {
    return send(this.url, method, path, init);
  }

  metric(name: NodeService, series: string): Promise<number> {
    return (this.#inside.get(name) ?? this.process(name)).metric(series);
  }

  /** SIGKILL; resolves when the process is gone. A service that runs inside is stopped. */
  async kill(name: NodeService): Promise<void> {
    const inside = this.#inside.get(name);
    this.#inside.delete(name);
    await inside?.[Symbol.asyncDispose]();
    const process = this.#processes.get(name);
    this.#processes.delete(name);
    await process?.kill();
  }

  /** Starts a service with its data. */
  async start(name: NodeService, more: readonly string[] = []): Promise<void> {
    const { fs, onFatal, inside = [] } = this.#init;
    const flags = [...this.#flagsOf(name), ...(this.#init.flags?.[name] ?? []), ...more];
    if (inside.includes(name)) {
      const faults = name === 'interop' ? { fs, onFatal } : {};
      this.#inside.set(name, await startInside(name, { flags, ...faults }));
      return;
    }
    const process = await ServiceProcess.start({
      main: fileURLToPath(new URL(`../../../${name}/src/main.ts`, import.meta.url)),
      ...this.#init.process?.[name],
      flags,
    });
    this.#processes.set(name, process);
  }

  async restart(name: NodeService): Promise<void> {
    await this.kill(name);
    await this.start(name);
  }

  /** A token for a service; by default with all of its scopes. */
  async token(audience: Service, init: Partial<MintInit> = {}): Promise<string> {
    this.#keys ??= new DerivedKeySource({ deriver: new KmsDeriver({ url: this.socketOf('kms'), capability: () => this.#owner() }) });
    return (await mint(this.#keys, { audience, scopes: scopesOf(audience), ttl_ms: TTL_MS, ...init }, NEVER)).token;
  }

  async admin(): Promise<InteropClient> {
    return new InteropClient({ ...reachPrivately(this.socketOf('interop')), capability: await this.token('interop') });
  }

  async mailbox(): Promise<MailboxClient> {
    return new MailboxClient({ ...reachPrivately(this.socketOf('mailbox')), capability: await this.token('mailbox') });
  }

  async kms(): Promise<KmsClient> {
    return new KmsClient({ ...reachPrivately(this.socketOf('kms')), capability: await this.token('kms') });
  }

  socketOf(name: NodeService): string {
    return `unix:${this.#socket(name)}`;
  }

  dataOf(name: NodeService): string {
    return join(this.dir, name);
  }

  /** Waits until the metric of a service has a value. */
  async metricReaches(name: NodeService, series: string, value: number): Promise<void> {
    await eventually(`${series} of ${name} reaches ${value}`, async () => (await this.metric(name, series)) >= value);
  }

  #insideOf(name: NodeService): InsideService {
    const service = this.#inside.get(name);
    if (service === undefined) throw new Error(`${name} does not run inside`);
    return service;
  }

  /** The capability that derives the keys of all services. */
  async #owner(): Promise<string> {
    return (await readFile(this.#ownerFile, 'utf8')).trim();
  }

  get #ownerFile(): string {
    return join(this.dir, 'owner.cap');
  }

  #socket(name: NodeService): string {
    return join(this.dir, `${name}.sock`);
  }

  #capability(to: NodeService): string {
    return join(this.dir, `interop-${to}.cap`);
  }

  async #writeCapabilities(): Promise<void> {
    const calls = {
      mailbox: { scopes: ['mailbox:send'], caveats: ['name ^= hooks.'] },
      kms: { scopes: ['kms:create', 'kms:wrap', 'kms:unwrap', 'kms:sign', 'kms:read'], caveats: ['tenant = interop'] },
      passport: { scopes: ['passport:exchange'], caveats: [] },
    } as const;
    for (const to of ['mailbox', 'kms', 'passport'] as const) {
      await this.#write(this.#capability(to), await this.token(to, { ...calls[to], subject: 'svc-interop' }));
    }
    await this.#write(this.#logCapability, await this.token('kms', { scopes: ['kms:log'], subject: 'svc-passport' }));
    for (const name of NODE_SERVICES) {
      const label = name === 'passport' ? 'audience/' : audiencePrefix(name);
      const derives = { scopes: ['kms:audience'], caveats: [`label ^= ${label}`], subject: `svc-${name}` } as const;
      await this.#write(this.#derivation(name), await this.token('kms', derives));
    }
  }

  get #logCapability(): string {
    return join(this.dir, 'passport-log.cap');
  }

  async #write(path: string, token: string): Promise<void> {
    await writeFile(path, `${token}\n`, { mode: 0o600 });
  }

  #derivation(name: NodeService): string {
    return join(this.dir, `${name}-keys.cap`);
  }

  #flagsOf(name: NodeService): string[] {
    const storing = name === 'storage' ? `--data_dirs=${this.dataOf(name)}` : `--data_dir=${this.dataOf(name)}`;
    const shared = [
      `--server.socket=${this.#socket(name)}`,
      '--server.bind=127.0.0.1:0',
      this.#init.amnesia === true ? '--amnesia.enabled=true' : storing,
    ];
    if (name === 'kms') return [...shared, `--auth.owner_file=${this.#ownerFile}`];
    const calling = [
      ...shared,
      `--auth.kms_url=${this.socketOf('kms')}`,
      `--auth.capability_file=${this.#derivation(name)}`,
      ...(this.#init.amnesia === true ? [] : [`--auth.cache_file=${join(this.dir, `${name}.cache`)}`]),
      name === 'passport'
        ? `--passport.log_capability_file=${this.#logCapability}`
        : `--auth.passport_url=${this.socketOf('passport')}`,
    ];
    if (name !== 'interop') return calling;
    return [
      ...calling,
      `--interop.mailbox_url=${this.socketOf('mailbox')}`,
      `--interop.mailbox_capability_file=${this.#capability('mailbox')}`,
      `--interop.storage_url=${this.socketOf('storage')}`,
      `--interop.kms_capability_file=${this.#capability('kms')}`,
      `--interop.passport_capability_file=${this.#capability('passport')}`,
    ];
  }
}
