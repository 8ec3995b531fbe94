/** Real services as processes, each with a capability for all of its scopes. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { FileKeySource, mint } from '@ron/auth';
import { NEVER } from '@ron/kernel';
import { scopesOf } from '@ron/proto';
import { tempDir, type After, type TempDir } from '../temp-dir.ts';
import { ServiceProcess } from './service-process.ts';

type Started = 'index' | 'kms' | 'mailbox' | 'storage';

const mainOf = (service: Started): string =>
  fileURLToPath(new URL(`../../../../services/${service}/src/main.ts`, import.meta.url));

async function tokenFrom(key_file: string, audience: Started): Promise<string> {
  await using keys = await FileKeySource.open({ path: key_file }, NEVER);
  return (await mint(keys, { audience, scopes: scopesOf(audience), ttl_ms: 600_000 }, NEVER)).token;
}

/** Hooks of `node:test` run in the order of their registration: the process ends before its files are removed. */
async function stop(process: ServiceProcess, temp: TempDir): Promise<void> {
  await process.kill();
  await temp[Symbol.asyncDispose]();
}

export const startKms = (t: After): Promise<{ url: string; token: string }> => startInMemory(t, 'kms');
export const startIndex = (t: After): Promise<{ url: string; token: string }> => startInMemory(t, 'index');
export const startMailbox = (t: After): Promise<{ url: string; token: string }> => startInMemory(t, 'mailbox');

async function startInMemory(t: After, service: Exclude<Started, 'storage'>): Promise<{ url: string; token: string }> {
  const temp = await tempDir();
  const key_file = join(temp.path, 'keys');
  const token = await tokenFrom(key_file, service);
  const flags = ['--amnesia.enabled=true', `--auth.key_file=${key_file}`];
  const process = await ServiceProcess.start({ main: mainOf(service), flags });
  t.after(() => stop(process, temp));
  return { url: process.url, token };
}

export interface StorageProcess {
  readonly url: string;
  readonly token: string;
  /** Kills it with SIGKILL. */
  kill(): Promise<void>;
  /** Starts it again on the same port with the same data. */
  start(): Promise<void>;
}

export async function startStorage(t: After, flags: readonly string[] = []): Promise<StorageProcess> {
  const temp = await tempDir();
  const key_file = join(temp.path, 'keys');
  const token = await tokenFrom(key_file, 'storage');
  const args = [`--data_dirs=${temp.path}/data`, `--auth.key_file=${key_file}`, ...flags];
  const startOn = (bind: string): Promise<ServiceProcess> =>
    ServiceProcess.start({ main: mainOf('storage'), flags: [`--server.bind=${bind}`, ...args] });
  let process = await startOn('127.0.0.1:0');
  t.after(() => stop(process, temp));
  const { url } = process;
  return {
    url,
    token,
    kill: () => process.kill(),
    start: async () => void (process = await startOn(new URL(url).host)),
  };
}
