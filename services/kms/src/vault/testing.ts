/** A vault on an in-memory disk, and operations on it, for tests. */
import { loadConfig } from '@ron/config';
import { NEVER, sched } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { schema } from '../config.ts';
import { openVault, type Vault } from './vault.ts';

export const DATA = '/data';
const KEK = '00'.repeat(32);

export function openOn(fs: FileSystem): Promise<Vault> {
  const config = loadConfig({ schema, flags: [`--data_dir=${DATA}`] });
  return openVault({ config, env: { RON_KEK: KEK }, fs, signal: NEVER, warn: () => undefined });
}

/** Creates a key in the backend and the registry. Returns its name and its handle. */
export async function makeKey(vault: Vault, id: string): Promise<{ name: string; handle: string }> {
  const name = `acme/docs/aes-256-gcm/${id}`;
  const { key: handle } = await vault.backend.create('aes-256-gcm', name, NEVER);
  const version = { version: 1, handle, public: [], created_ms: sched.wall_ms() };
  const record = { name, tenant: 'acme', purpose: 'docs', alg: 'aes-256-gcm', verify_mode: 'and' } as const;
  await vault.registry.change(() => ({ ...record, min_version: 1, imported: false, versions: [version] }), NEVER);
  return { name, handle };
}

export async function log(vault: Vault, count = 1): Promise<void> {
  const entries = Array.from({ length: count }, (_, at) =>
    Buffer.from(`entry ${vault.log!.size + at} of ${vault.origin}`),
  );
  await vault.log!.append(entries, NEVER);
}

export async function sign(vault: Vault): Promise<void> {
  await vault.log!.writeCheckpoint(NEVER, vault.recorder);
}

export async function doOnce(vault: Vault, op_id: string, answer: string): Promise<string> {
  return await vault.ledger.once({ tenant: 'acme', op_id, request: op_id }, async () => answer, NEVER);
}

/** Uses every part of the vault, up to a published checkpoint. */
export async function use(vault: Vault, id: string): Promise<void> {
  await log(vault, 3);
  await sign(vault);
  const { handle } = await makeKey(vault, id);
  await vault.backend.wrap(handle, new Uint8Array(16), new Uint8Array(0), NEVER);
  await doOnce(vault, id, id);
  await log(vault, 2);
  await sign(vault);
}
