/** A real key service in its own process, and a capability for it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { FileKeySource, mint } from '@ron/auth';
import { scopesOf } from '@ron/proto';

const MAIN = fileURLToPath(new URL('../../../services/kms/src/main.ts', import.meta.url));
const never = new AbortController().signal;

export async function startKms(t: Pick<TestContext, 'after'>): Promise<{ url: string; token: string }> {
  const dir = await mkdtemp(join(tmpdir(), 'ron-client-'));
  const key_file = join(dir, 'keys');
  await using keys = await FileKeySource.open({ path: key_file }, never);
  const { token } = await mint(keys, { audience: 'kms', scopes: scopesOf('kms'), ttl_ms: 600_000 }, never);
  const args = [MAIN, '--amnesia.enabled=true', `--auth.key_file=${key_file}`];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  t.after(async () => {
    child.kill('SIGKILL');
    await once(child, 'exit');
    await rm(dir, { recursive: true });
  });
  for await (const line of createInterface({ input: child.stdout })) {
    return { url: (JSON.parse(line) as { url: string }).url, token };
  }
  throw new Error('kms did not start');
}
