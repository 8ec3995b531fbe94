/**
 * A SoftHSM2 token in its own process, reached through p11-kit's remote module: a token that can die and return while its
 * client keeps running.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assert, Deadline, sleep } from '@ron/kernel';
import { BackgroundProgram } from './run-program.ts';
import { SoftHsm } from './soft-hsm.ts';
import { P11_KIT_MODULES, whereIs } from './tools.ts';

const START_MS_MAX = 5000;
const POLL_MS = 5;

export class RemoteHsm implements AsyncDisposable {
  readonly module: string;
  readonly #hsm: SoftHsm;
  readonly #dir: string;
  #server: BackgroundProgram | undefined;

  private constructor(module: string, hsm: SoftHsm) {
    this.module = module;
    this.#hsm = hsm;
    this.#dir = mkdtempSync(join(tmpdir(), 'ron-p11-'));
  }

  static async start(): Promise<RemoteHsm> {
    const module = whereIs(P11_KIT_MODULES);
    assert(module !== undefined, 'p11-kit is installed');
    const remote = new RemoteHsm(module, await SoftHsm.start());
    process.env.P11_KIT_SERVER_ADDRESS = `unix:path=${remote.#socket}`;
    await remote.revive();
    return remote;
  }

  get token(): string {
    return this.#hsm.token;
  }

  get pin(): string {
    return this.#hsm.pin;
  }

  /** Kills the token's process immediately. */
  async kill(): Promise<void> {
    await this.#server?.kill();
    rmSync(this.#socket, { force: true });
  }

  /** Stops the token's process without ending it: calls hang until it is killed. */
  freeze(): void {
    this.#server?.freeze();
  }

  async revive(): Promise<void> {
    const args = ['server', '--foreground', '--provider', this.#hsm.module, '--name', this.#socket];
    this.#server = new BackgroundProgram('p11-kit', [...args, `pkcs11:token=${this.token}`]);
    const deadline = Deadline.after('start', START_MS_MAX);
    while (!existsSync(this.#socket)) await sleep(POLL_MS, deadline.signal);
    deadline.cancel();
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get #socket(): string {
    return join(this.#dir, 'socket');
  }
}
