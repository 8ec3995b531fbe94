/**
 * A software TPM (swtpm) behind a resource manager (tpm2-abrmd on its own bus) and tpm2-pkcs11, like a machine with a real
 * TPM and `/dev/tpmrm0`.
 *
 * The module reads its environment once per process, so a process can have only one.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assert, Deadline, RonError, sleep } from '@ron/kernel';
import { BackgroundProgram, runProgram } from './run-program.ts';
import { TPM_MODULES, whereIs } from './tools.ts';

/** Long: each command loads the module and starts a session of the TPM, and other tests use the processors. */
const START_MS_MAX = 60_000;
const POLL_MS = 50;
const STARTS_MAX = 5;
const SO_PIN = '5678';

export class SoftwareTpm implements AsyncDisposable {
  readonly module: string;
  readonly token = 'ron';
  readonly pin = '1234';
  readonly #dir: string;
  readonly #programs: BackgroundProgram[];
  readonly #startManager: () => BackgroundProgram;
  #manager: BackgroundProgram;

  private constructor(
    dir: string,
    module: string,
    programs: BackgroundProgram[],
    startManager: () => BackgroundProgram,
  ) {
    this.#dir = dir;
    this.module = module;
    this.#programs = programs;
    this.#startManager = startManager;
    this.#manager = startManager();
  }

  static async start(): Promise<SoftwareTpm> {
    const module = whereIs(TPM_MODULES);
    assert(module !== undefined, 'tpm2-pkcs11 is installed');
    const dir = mkdtempSync(join(tmpdir(), 'ron-tpm-'));
    for (const each of ['state', 'store']) mkdirSync(join(dir, each));
    process.env.DBUS_SESSION_BUS_ADDRESS = `unix:path=${join(dir, 'bus')}`;
    process.env.TPM2_PKCS11_STORE = join(dir, 'store');
    process.env.TPM2_PKCS11_TCTI = 'tabrmd:bus_type=session';
    // Both log expected conditions to stderr: a new store, a full TPM.
    process.env.TSS2_LOG = 'all+none';
    process.env.TPM2_PKCS11_LOG_LEVEL = '0';
    const { swtpm, port } = await startTpm(join(dir, 'state'));
    const address = `--address=unix:path=${join(dir, 'bus')}`;
    const programs = [new BackgroundProgram('dbus-daemon', ['--session', '--nofork', '--nosyslog', address]), swtpm];
    const manager = ['--session', '--allow-root', `--tcti=swtpm:host=127.0.0.1,port=${port}`];
    const tpm = new SoftwareTpm(dir, module, programs, () => new BackgroundProgram('tpm2-abrmd', manager));
    await tpm.#initialise();
    return tpm;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#programs, this.#manager].map((program) => program.stop()));
    rmSync(this.#dir, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /**
   * Waits for the resource manager. It does not signal readiness, so the first command that succeeds does. It exits if the
   * bus or the TPM does not listen yet; then it is started again.
   */
  async #initialise(): Promise<void> {
    const tool = ['--module', this.module];
    await eventually(() => {
      if (!this.#manager.isRunning) this.#manager = this.#startManager();
      return runProgram('pkcs11-tool', [
        ...tool,
        '--init-token',
        '--slot-index',
        '0',
        '--label',
        this.token,
        '--so-pin',
        SO_PIN,
      ]);
    });
    const login = ['--token-label', this.token, '--login', '--login-type', 'so', '--so-pin', SO_PIN];
    await runProgram('pkcs11-tool', [...tool, ...login, '--init-pin', '--new-pin', this.pin]);
  }
}

async function startTpm(state: string): Promise<{ swtpm: BackgroundProgram; port: number }> {
  for (let start = 0; start < STARTS_MAX; start++) {
    // The client expects the control channel on the next port. Either port may be taken before swtpm binds it.
    const port = await freePort();
    const channel = (at: number): string => `type=tcp,port=${at},bindaddr=127.0.0.1`;
    const args = ['socket', '--tpm2', '--tpmstate', `dir=${state}`, '--flags', 'not-need-init,startup-clear'];
    const swtpm = new BackgroundProgram('swtpm', [...args, '--server', channel(port), '--ctrl', channel(port + 1)]);
    if (await listens(swtpm, port + 1)) return { swtpm, port };
    await swtpm.stop();
  }
  throw new RonError('not_ready', 'swtpm does not start');
}

/** Whether the program accepts connections at `port`; false if it exits first, or does not within the time of a start. */
async function listens(program: BackgroundProgram, port: number): Promise<boolean> {
  const deadline = Deadline.after('start', START_MS_MAX);
  try {
    while (program.isRunning && !deadline.expired) {
      if (await accepts(port)) return program.isRunning;
      await sleep(POLL_MS, deadline.signal);
    }
    return false;
  } finally {
    deadline.cancel();
  }
}

async function accepts(port: number): Promise<boolean> {
  const socket = createConnection(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert(address !== null && typeof address === 'object', 'a server that listens has an address');
  server.close();
  return Math.min(address.port, 65_534);
}

async function eventually(attempt: () => Promise<unknown>): Promise<void> {
  const deadline = Deadline.after('start', START_MS_MAX);
  for (;;) {
    try {
      await attempt();
      deadline.cancel();
      return;
    } catch (error) {
      if (deadline.expired) throw error;
      await sleep(POLL_MS, deadline.signal);
    }
  }
}
