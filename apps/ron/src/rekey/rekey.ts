/**
 * `ron keys rekey`: replaces the key or passphrase that seals the data of kms.
 *
 * Contract: the node is stopped (its directory is locked meanwhile). If the present secret is in a file and the new one is of
 * the same kind, that file is replaced while both secrets open the data, so kms starts without a change of its configuration
 * after a crash at any step. Otherwise the result says what to set. A second run with the same flags completes the first.
 */
import { constants } from 'node:fs';
import { access, realpath, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { kekFromText, type Unlock } from '@ron/custody/sealed';
import { rekeyStore } from '@ron/custody/store';
import { isRonError, sched } from '@ron/kernel';
import { readSecretFile, writeSecret } from '@ron/log/secret-file';
import { takeEnvironment } from '@ron/proto';
import { usage } from '../args.ts';
import type { Values } from '../command.ts';
import { CliError } from '../exits.ts';
import { homeOf } from '../home.ts';
import type { Io } from '../io.ts';
import type { REKEY_OPTIONS } from './options.ts';
import { lockHome } from '../up/directory.ts';
import { plan, type Planned } from '../up/plan.ts';
import { resealFiles } from '../up/sealed-files.ts';
import { SERVICE_TABLE } from '../up/table/services.ts';

type RekeyValues = Values<typeof REKEY_OPTIONS> & { readonly dir?: string | undefined };

/** A secret, and the file that the configuration names for it; without a path it is in the environment. */
interface Secret {
  readonly kind: 'key' | 'passphrase';
  readonly path: string | undefined;
  readonly text: string;
}

const KEY_BYTES = 32;
const NEW_FILE = 'write the new key to a file (openssl rand -hex 32) and name it with --new-kek-file';

export async function rekey(values: RekeyValues, io: Io, signal: AbortSignal): Promise<void> {
  const env = takeEnvironment(io.env);
  const place = { home: homeOf(values, io), base_port: 0, amnesia: false };
  const services = await plan({ place, table: SERVICE_TABLE, config: values.config, set: values.set, env });
  const kms = services.find(({ entry }) => entry.derives_keys === true)!;
  const data_dir = kms.value('data_dir')!;
  const vault = join(data_dir, 'vault');
  if ((await stat(vault).catch(() => undefined)) === undefined)
    throw new CliError('no_input', `kms has no data in ${data_dir}`);
  await using locked = await lockHome(values, io, signal);
  void locked;
  const before = await presentSecret(kms, data_dir, env['RON_KEK']);
  const next = await newSecret(values, before);
  const isSwitched = before.kind === next.kind && (await isReplaceable(before.path));
  if (!isSwitched && next.path === undefined)
    throw new CliError('usage', `${before.path ?? 'RON_KEK'} cannot be replaced here: ${NEW_FILE}`);
  await rekeyStore({
    dir: vault,
    current: unlockOf(before),
    next: unlockOf(next),
    async switchTo() {
      // The services other than kms have keys that are derived from that in the environment.
      if (before.path === undefined && next.kind === 'key')
        await resealFiles(services, { kek: next.text, kek_before: before.text }, signal);
      if (isSwitched) await writeSecret(await realpath(before.path!), `${next.text}\n`);
    },
    signal,
  }).catch(explain);
  const then = isSwitched ? `The new ${next.kind} is in ${before.path}` : settingOf(before, next);
  io.result(`Replaced the ${before.kind} of kms. ${then}.\nCopies of ${vault} from before open with the old one.`, {
    rekeyed: true,
    kind: next.kind,
    file: isSwitched ? before.path : (next.path ?? null),
    needs_configuration: !isSwitched,
  });
}

async function presentSecret(kms: Planned, data_dir: string, variable: string | undefined): Promise<Secret> {
  const passphrase_file = kms.value('kms.passphrase_file');
  const kek_file = kms.value('kms.kek_file');
  if (passphrase_file === undefined && kek_file === undefined && variable !== undefined && variable !== '')
    return { kind: 'key', path: undefined, text: variable.trim() };
  const path = passphrase_file ?? kek_file ?? join(data_dir, 'kek');
  return { kind: passphrase_file === undefined ? 'key' : 'passphrase', path, text: await readSecretFile(path) };
}

async function newSecret(values: RekeyValues, before: Secret): Promise<Secret> {
  const { 'new-kek-file': kek_file, 'new-passphrase-file': passphrase_file, generate } = values;
  const given = [kek_file, passphrase_file, generate].filter((value) => value !== undefined);
  if (given.length !== 1)
    throw usage({ name: 'keys' }, 'rekey: expected one of --new-kek-file, --new-passphrase-file and --generate');
  if (kek_file !== undefined) return { kind: 'key', path: kek_file, text: await readSecretFile(kek_file) };
  if (passphrase_file !== undefined)
    return { kind: 'passphrase', path: passphrase_file, text: await readSecretFile(passphrase_file) };
  const text = Buffer.from(sched.randomBytes(KEY_BYTES)).toString('hex');
  return { kind: before.kind, path: undefined, text };
}

const unlockOf = ({ kind, text }: Secret): Unlock =>
  kind === 'key' ? { kek: kekFromText(text) } : { passphrase: text };

/** A secret in the environment, or in a read-only mount, is replaced by the operator. */
async function isReplaceable(path: string | undefined): Promise<boolean> {
  if (path === undefined) return false;
  return await access(dirname(await realpath(path)), constants.W_OK).then(
    () => true,
    () => false,
  );
}

/** The change that the operator has to make before the next start. */
function settingOf(before: Secret, next: Secret): string {
  if (before.path === undefined && next.kind === 'key') return `Set RON_KEK to the key in ${next.path}`;
  if (before.kind === next.kind) return `Replace the content of ${before.path} by that of ${next.path}`;
  if (next.kind === 'passphrase') return `Set kms.passphrase_file to ${next.path}, and remove kms.kek_file`;
  return `Set kms.kek_file to ${next.path}, and remove kms.passphrase_file`;
}

function explain(error: unknown): never {
  if (isRonError(error, 'conflict'))
    throw new CliError('unavailable', 'kms runs: stop it first; its data cannot be sealed again meanwhile');
  if (isRonError(error, 'not_ready'))
    throw new CliError(
      'permission',
      `${error.message}; nothing was changed, or an earlier run used another new secret`,
    );
  throw error;
}
