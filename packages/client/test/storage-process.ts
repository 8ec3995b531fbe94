/** A real storage service in its own process, and a capability for it. */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { FileKeySource, mint } from '@ron/auth';
import { scopesOf } from '@ron/proto';

const MAIN = fileURLToPath(new URL('../../../services/storage/src/main.ts', import.meta.url));
const never = new AbortController().signal;

export interface StorageProcess {
  readonly url: string;
  readonly token: string;
  /** Kills it with SIGKILL. */
  kill(): Promise<void>;
  /** Restarts it on the same port and the same data. */
  start(): Promise<void>;
}

export async function startStorage(
  t: Pick<TestContext, 'after'>,
  flags: readonly string[] = [],
): Promise<StorageProcess> {
  const dir = await mkdtemp(join(tmpdir(), 'ron-client-'));
  const key_file = join(dir, 'keys');
  await using keys = await FileKeySource.open({ path: key_file }, never);
  const { token } = await mint(keys, { audience: 'storage', scopes: scopesOf('storage'), ttl_ms: 600_000 }, never);
  let child: ChildProcess | undefined;
  let url = 'http://127.0.0.1:0';
  const start = async (): Promise<void> => {
    const bind = new URL(url).host;
    const args = [MAIN, `--server.bind=${bind}`, `--data_dirs=${dir}/data`, `--auth.key_file=${key_file}`, ...flags];
    child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    child.stderr!.setEncoding('utf8').on('data', (text: string) => (said += text));
    for await (const line of createInterface({ input: child.stdout! })) {
      url = (JSON.parse(line) as { url: string }).url;
      return;
    }
    throw new Error(`storage did not start: ${said}`);
  };
  const kill = async (): Promise<void> => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  };
  t.after(async () => {
    await kill();
    await rm(dir, { recursive: true });
  });
  await start();
  return {
    get url() {
      return url;
    },
    token,
    kill,
    start,
  };
}

/** Pseudo-random bytes that can be reproduced. */
export function contentOf(size: number, seed = 1): Uint8Array<ArrayBuffer> {
  const words = new Uint32Array(Math.ceil(size / 4));
  let state = seed | 1;
  for (let at = 0; at < words.length; at++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    words[at] = state;
  }
  return new Uint8Array(words.buffer, 0, size);
}

/** Compares bytes with a one-line message: a diff of megabytes takes minutes. */
export function assertSameBytes(actual: Uint8Array, expected: Uint8Array, what = 'bytes'): void {
  if (Buffer.compare(actual, expected) === 0) return;
  const at = expected.findIndex((byte, index) => byte !== actual[index]);
  assert.fail(`${what}: ${actual.length} where ${expected.length} are expected, the first difference at ${at}`);
}
