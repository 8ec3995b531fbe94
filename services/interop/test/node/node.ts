/**
 * A node of real processes: kms, passport, storage, mailbox and interop, which call each other by Unix sockets, with keys that
 * kms derives, as `ron up` starts them. A process can be killed and started again with its data. Interop may run inside the
 * process of the test.
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
import { scopesOf, type Service } from '@ron/proto';
import { tempDir, type After } from '@ron/testkit';
import { send, ServiceProcess, type Reply, type SendInit, type ServiceProcessInit } from '@ron/testkit/service';
import type { Interop } from '../../src/service.ts';
import { startInside, type InsideInit, type InsideInterop } from './inside.ts';

export const NODE_SERVICES = ['kms', 'passport', 'storage', 'mailbox', 'interop'] as const;
export type NodeService = (typeof NODE_SERVICES)[number];

/** Longer than a jump of the clock. */
const TTL_MS = 12 * 3_600_000;

export interface TestNodeInit {
  /** Default: all. */
  readonly services?: readonly NodeService[];
  /** Further flags of a service. */
  readonly flags?: Partial<Record<NodeService, readonly string[]>>;
  readonly amnesia?: boolean;
  /** Interop runs in the process of the test. */
  readonly inside?: InsideInit;
  /** How the process of a service is started. */
  readonly process?: Partial<Record<NodeService, Partial<ServiceProcessInit>>>;
}

interface Gate {
  readonly gate: string;
  readonly reason: string;
}

export class TestNode {
  readonly dir: string;
  readonly #init: TestNodeInit;
  readonly #processes = new Map<NodeService, ServiceProcess>();
  #inside: InsideInterop | undefined;
  #keys: DerivedKeySource | undefined;

  private constructor(dir: string, init: TestNodeInit) {
    this.dir = dir;
    this.#init = init;
  }

  static async start(t: After, init: TestNodeInit = {}): Promise<TestNode> {
    const temp = await tempDir();
    const node = new TestNode(temp.path, init);
    t.after(async () => {
      await node.kill('interop');
      await Promise.all(NODE_SERVICES.map((name) => node.kill(name)));
      await temp[Symbol.asyncDispose]();
    });
    await node.start('kms');
    await node.#writeCapabilities();
    const { services = NODE_SERVICES } = init;
    const [first, ...others] = services.filter((name) => name !== 'kms' && name !== 'interop');
    // The first one creates the files that all of them share.
    if (first !== undefined) await node.start(first);
    const started = await Promise.allSettled(others.map((name) => node.start(name)));
    for (const each of started) if (each.status === 'rejected') throw each.reason;
    if (services.includes('interop')) await node.start('interop');
    return node;
  }

  /** Whether the process of a service was started and not killed. */
  runs(name: NodeService): boolean {
    return this.#processes.has(name);
  }

  process(name: NodeService): ServiceProcess {
    const process = this.#processes.get(name);
    if (process === undefined) throw new Error(`${name} does not run`);
    return process;
  }

  /** Interop, if it runs inside. */
  get interop(): Interop {
    return this.#inside!.interop;
  }

  get url(): string {
    return this.#inside?.interop.url ?? this.process('interop').url;
  }

  /** A request to the TCP listener of interop. */
  send(method: string, path: string, init?: SendInit): Promise<Reply> {
    return send(this.url, method, path, init);
  }

  metric(name: NodeService, series: string): Promise<number> {
    return (name === 'interop' ? (this.#inside ?? this.process(name)) : this.process(name)).metric(series);
  }

  /** SIGKILL; resolves when the process is gone. Interop that runs inside is stopped. */
  async kill(name: NodeService): Promise<void> {
    if (name === 'interop') {
      const inside = this.#inside;
      this.#inside = undefined;
      await inside?.[Symbol.asyncDispose]();
    }
    const process = this.#processes.get(name);
    this.#processes.delete(name);
    await process?.kill();
  }

  /** Starts a service with its data. */
  async start(name: NodeService, more: readonly string[] = []): Promise<void> {
    const flags = [...this.#flagsOf(name), ...(this.#init.flags?.[name] ?? []), ...more];
    if (name === 'interop' && this.#init.inside !== undefined) {
      this.#inside = await startInside(flags, this.#init.inside);
      return;
    }
    const main = fileURLToPath(new URL(`../../../${name}/src/main.ts`, import.meta.url));
    this.#processes.set(name, await ServiceProcess.start({ main, ...this.#init.process?.[name], flags }));
  }

  async restart(name: NodeService): Promise<void> {
    await this.kill(name);
    await this.start(name);
  }

  /** A token for a service; by default with all of its scopes. */
  async token(audience: Service, init: Partial<MintInit> = {}): Promise<string> {
    this.#keys ??= new DerivedKeySource({
      deriver: new KmsDeriver({ url: this.socketOf('kms'), capability: () => this.#owner() }),
    });
    return (await mint(this.#keys, { audience, scopes: scopesOf(audience), ttl_ms: TTL_MS, ...init }, NEVER)).token;
  }

  /** The `Authorization` of a user of the bridge. */
  async user(): Promise<{ readonly authorization: string }> {
    const scopes = ['interop:put', 'interop:get'] as const;
    return { authorization: `Bearer ${await this.token('interop', { scopes, subject: 'alice', epoch: Date.now() })}` };
  }

  /** The closed gates, with their reasons, and the status of a probe for a lane. */
  async readyz(lane?: string): Promise<{ status: number; closed: Readonly<Record<string, string>> }> {
    const { status, json } = await this.send('GET', `/readyz${lane === undefined ? '' : `?lane=${lane}`}`);
    const closed = json.gates.filter(({ open }: { open: boolean }) => !open);
    return { status, closed: Object.fromEntries(closed.map(({ gate, reason }: Gate) => [gate, reason])) };
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
