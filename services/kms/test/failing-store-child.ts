/** kms as a process whose store fails while it commits. Prints each acknowledged commit. See store-failure.test.ts. */
import { spawn } from 'node:child_process';
import { closeSync, constants, openSync, readdirSync, readFileSync, readlinkSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { Worker } from 'node:worker_threads';
import { LmdbStore } from '@ron/custody/store';
import { isRonError, NEVER } from '@ron/kernel';
import { schema, startKms, type Kms } from '@ron/kms';
import { runProcess } from '@ron/service';
import { MADE, TABLES } from '../src/vault/tables.ts';

const [dir, fault] = process.argv.slice(2) as [string, string];
const vault = join(dir, 'vault');
/** Into a file: a pipe may be full. */
const output = openSync(`${dir}.lines`, 'a');
const say = (line: object): void => void writeSync(output, `${JSON.stringify(line)}\n`);
const pause = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms));

const workers: Worker[] = [];

async function openStore(): Promise<LmdbStore> {
  const note = (worker: Worker): void => void workers.push(worker);
  process.on('worker', note);
  const unlock = { kek: new Uint8Array(32) };
  const store = await LmdbStore.open({ dir: vault, tables: TABLES, unlock, signal: NEVER, write_ms_max: 1000 });
  process.off('worker', note);
  return store;
}

/** Returns once all threads are traced. */
async function inject(what: string): Promise<void> {
  const path = join(vault, 'data.mdb');
  const trace = ['-e', 'trace=pwrite64,fdatasync', '-e', `inject=${what}`];
  const args = ['-f', '-qq', '-o', '/dev/null', '-p', String(process.pid), '-P', path, ...trace];
  spawn('strace', args, { stdio: ['ignore', 'ignore', 'inherit'] }).unref();
  const status = (task: string): string => readFileSync(`/proc/self/task/${task}/status`, 'utf8');
  while (readdirSync('/proc/self/task').some((task) => /TracerPid:\t0\n/.test(status(task)))) await pause(20);
}

/** Replaces the descriptor that LMDB writes its meta page with by one that cannot be written. */
function loseMetaPage(): void {
  const isMeta = (fd: string): boolean => {
    try {
      const isStore = readlinkSync(`/proc/self/fd/${fd}`) === join(vault, 'data.mdb');
      const flags = /flags:\t(\d+)/.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))![1]!;
      return isStore && (Number.parseInt(flags, 8) & constants.O_DSYNC) !== 0;
    } catch {
      return false;
    }
  };
  const fd = Number(readdirSync('/proc/self/fd').find(isMeta));
  closeSync(fd);
  while (openSync('/dev/null', 'r') !== fd);
}

async function begin(): Promise<void> {
  if (fault === 'meta') return loseMetaPage();
  if (fault === 'thread') for (const worker of workers) void worker.terminate();
  else await inject(fault);
}

async function use({ vault: { store }, url }: Kms): Promise<void> {
  const put = async (key: string): Promise<void> => {
    try {
      await store.commit((draft) => draft.put(MADE, key, Buffer.alloc(3000)), NEVER);
      say({ key });
    } catch (error) {
      say({ refused: isRonError(error) ? error.code : String(error) });
    }
  };
  const round = (name: string): Promise<unknown> =>
    Promise.all(Array.from({ length: 200 }, (_, at) => put(`${name} ${at}`)));
  await round('before');
  const during = fault === 'thread' ? round('during') : undefined;
  await pause(2);
  await begin();
  await during;
  for (let at = 0; store.problem === undefined; at++) await round(`after ${at}`);
  const ready = fetch(`${url}/readyz`).then(({ status }) => status);
  await round('refused at once');
  say({ problem: store.problem, ready: await ready.catch(() => 'stopped') });
}

await runProcess({
  name: 'kms',
  schema,
  argv: [`--data_dir=${dir}`],
  env: {},
  start: async (context) => {
    const kms = await startKms({ ...context, store: await openStore() });
    void use(kms);
    return kms;
  },
});
