import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileBackend, MemoryBackend } from '../src/index.ts';
import { backendContract } from './contract.ts';

const { signal } = new AbortController();

backendContract('memory', async () => {
  const backend = new MemoryBackend();
  return { backend, close: () => backend.close() };
});

backendContract('file', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'ron-custody-'));
  const open = (): Promise<FileBackend> =>
    FileBackend.open({ path: join(dir, 'keys.sealed'), unlock: { kek: new Uint8Array(32).fill(7) }, signal });
  let backend = await open();
  return {
    backend,
    reopen: async () => (backend = await open()),
    async close() {
      await backend.close();
      await rm(dir, { recursive: true });
    },
  };
});
