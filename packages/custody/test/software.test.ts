import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileBackend, MemoryBackend, SECRETS } from '../src/index.ts';
import { LmdbStore } from '../src/store/index.ts';
import { backendContract } from './contract.ts';

const { signal } = new AbortController();

backendContract('memory', async () => {
  const backend = new MemoryBackend();
  return { backend, close: () => backend.close() };
});

backendContract('file', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'ron-custody-'));
  const unlock = { kek: new Uint8Array(32).fill(7) };
  const open = (): Promise<LmdbStore> => LmdbStore.open({ dir, tables: [SECRETS], unlock, signal });
  let store = await open();
  let backend = new FileBackend({ store });
  return {
    backend,
    // The contract closes the backend before it opens it again.
    reopen: async () => {
      await store.close();
      store = await open();
      return (backend = new FileBackend({ store }));
    },
    async close() {
      await backend.close();
      await store.close();
      await rm(dir, { recursive: true });
    },
  };
});
