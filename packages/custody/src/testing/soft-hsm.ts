/**
 * A real SoftHSM2 with its own token, in a directory that is removed when the process exits.
 *
 * SoftHSM reads its configuration once per process, so all tokens of a process share a directory; each has its own label.
 */
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assert, sched } from '@ron/kernel';
import { Cryptoki, type Handle } from '../pkcs11/cryptoki.ts';
import { runProgram } from './run-program.ts';
import { SOFTHSM_MODULES, whereIs } from './tools.ts';

let shared: string | undefined;

function directory(): string {
  if (shared !== undefined) return shared;
  const dir = mkdtempSync(join(tmpdir(), 'ron-softhsm-'));
  mkdirSync(join(dir, 'tokens'));
  writeFileSync(join(dir, 'softhsm2.conf'), `directories.tokendir = ${join(dir, 'tokens')}\nlog.level = ERROR\n`);
  process.env.SOFTHSM2_CONF = join(dir, 'softhsm2.conf');
  process.once('exit', () => rmSync(dir, { recursive: true, force: true }));
  shared = dir;
  return dir;
}

export class SoftHsm {
  readonly module: string;
  readonly token: string;
  readonly pin = '1234';
  readonly #dir: string;

  private constructor(dir: string, module: string, token: string) {
    this.#dir = dir;
    this.module = module;
    this.token = token;
  }

  static async start(): Promise<SoftHsm> {
    const module = whereIs(SOFTHSM_MODULES);
    assert(module !== undefined, 'SoftHSM2 is installed');
    const token = `ron-${Buffer.from(sched.randomBytes(6)).toString('hex')}`;
    const hsm = new SoftHsm(directory(), module, token);
    await runProgram('softhsm2-util', [
      '--init-token',
      '--free',
      '--label',
      token,
      '--pin',
      hsm.pin,
      '--so-pin',
      '5678',
    ]);
    return hsm;
  }

  /** Closes every session without the knowledge of their owners, like a token that was reset. */
  killSessions(): void {
    const { cryptoki, slot } = this.#slot();
    cryptoki.closeAllSessions(slot);
  }

  /** Logs out all sessions of this process; they stay open. */
  logOut(): void {
    const { cryptoki, slot } = this.#slot();
    const session = cryptoki.openSession(slot);
    cryptoki.logout(session);
    cryptoki.closeSession(session);
  }

  /** Finalizes the module for the whole process, like a driver that was restarted. */
  finalize(): void {
    new Cryptoki(this.module).finalize();
  }

  /** Removes the token. After `finalize` it cannot be found until `plugIn`. */
  pullOut(): void {
    renameSync(join(this.#dir, 'tokens'), join(this.#dir, 'pulled'));
    mkdirSync(join(this.#dir, 'tokens'));
  }

  #slot(): { cryptoki: Cryptoki; slot: Handle } {
    const cryptoki = new Cryptoki(this.module);
    const slot = cryptoki.slots().find((each) => cryptoki.tokenInfo(each).label === this.token);
    assert(slot !== undefined, 'the token is present');
    return { cryptoki, slot };
  }

  plugIn(): void {
    rmSync(join(this.#dir, 'tokens'), { recursive: true });
    renameSync(join(this.#dir, 'pulled'), join(this.#dir, 'tokens'));
  }
}
