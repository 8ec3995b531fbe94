/** `ron keys`: manages keys, whose private parts never leave kms. */
import { writeFile } from 'node:fs/promises';
import { splitKid, type KeyDeletion, type KeyInfo } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { confirm } from '../confirm.ts';
import { CliError, systemCode } from '../exits.ts';
import { columns } from '../format.ts';
import { onlySigningKey, withKms } from '../kms.ts';
import { REKEY_OPTIONS } from '../rekey/options.ts';
import { verbLines, verbOf, type VerbUsage } from '../verbs.ts';
import { partsOf, toJwk, toPem } from '../verify/public-keys.ts';

const options = {
  tenant: { type: 'string', value: 'NAME', doc: 'The owner of the key. Default for create: default; for list: all.' },
  prefix: { type: 'string', value: 'TEXT', doc: 'list: the keys whose names begin with it.' },
  purpose: {
    type: 'string',
    value: 'NAME',
    doc: 'create: the purpose of the key; raw signs bytes as they are. Default docs.',
  },
  alg: {
    type: 'string',
    value: 'ALG',
    doc: 'create: ed25519, ml-dsa-44, ml-dsa-65, ml-dsa-87, hybrid, x-wing, aes-256-gcm, hmac-sha256. Default hybrid.',
  },
  'no-rotate': {
    type: 'boolean',
    doc: 'create: the key keeps its only version, for verifiers that know its public key only.',
  },
  format: {
    type: 'string',
    value: 'FORMAT',
    doc: 'export: pem, jwk, or trust for a line of a trust file. Default pem.',
  },
  output: { type: 'string', short: 'o', value: 'FILE', doc: 'export: write to this file instead of printing.' },
  yes: { type: 'boolean', doc: 'delete, min-version: confirm. Required without a terminal.' },
  ...REKEY_OPTIONS,
  ...CONNECTION_OPTIONS,
} as const;

type KeysInvocation = Invocation<typeof options>;

interface Verb extends VerbUsage {
  run(invocation: KeysInvocation, args: readonly string[]): Promise<void>;
}

const VERBS: Readonly<Record<string, Verb>> = {
  create: { args: '', about: 'creates a key and prints its name', run: create },
  rotate: { args: 'KID', about: 'adds a version, which signs from then on; older versions still verify', run: rotate },
  list: { args: '', about: 'prints the name, state and versions of each key', run: list },
  show: { args: 'KID', about: 'prints all facts about a key', run: show },
  export: {
    args: '[KID]',
    about: 'prints the public key, for verifiers; default: the only signing key',
    run: exportKey,
  },
  disable: { args: 'KID', about: 'stops a key: it only verifies', run: disable },
  enable: { args: 'KID', about: 'makes a disabled key usable again', run: enable },
  delete: {
    args: 'KID',
    about: 'deletes a version (#v1) or a whole key, in two calls with a waiting period (kms.delete_wait) between them',
    run: deleteKey,
  },
  restore: { args: 'KID', about: 'cancels a deletion during its waiting period', run: restore },
  'min-version': {
    args: 'KID NUMBER',
    about:
      'sets the oldest version that verifies; after the waiting period older versions no longer unwrap and derive either, ' +
      'until then it can be lowered again',
    run: minVersion,
  },
  rekey: {
    args: '',
    about: 'replaces the key or passphrase that seals the data of kms; the node must be stopped',
    run: rekey,
  },
};

const NAMES = Object.keys(VERBS);

export default command({
  name: 'keys',
  usage: `keys ${NAMES.join('|')} [ARGUMENTS]`,
  about: ['Manages keys. Private keys never leave kms.', ...verbLines(VERBS)].join('\n'),
  options,
  args: [1, 3],
  words: NAMES,
  examples: {
    'ron keys create --tenant acme --alg ed25519': 'print acme/docs/ed25519/...#v1',
    'ron keys rotate acme/docs/ed25519/...#v1': 'print acme/docs/ed25519/...#v2',
    'ron keys list --json': 'print one key per line',
    'ron keys export acme/docs/ed25519/... > acme.pem': 'print the public key for `ron verify --public`',
    'ron keys delete acme/docs/ed25519/...#v1': 'start or finish the deletion of version 1',
    'ron keys delete acme/docs/ed25519/...': 'start or finish the deletion of the whole key',
    'ron keys min-version acme/docs/ed25519/... 2': 'refuse signatures of version 1',
    'ron keys rekey --generate': 'seal the data of kms with a new key',
  },
  async run(invocation) {
    const { verb, args } = verbOf('keys', VERBS, invocation.args);
    await verb.run(invocation, args);
  },
});

async function rekey({ values, io, signal }: KeysInvocation): Promise<void> {
  const { rekey: run } = await import('../rekey/rekey.ts');
  await run(values, io, signal);
}

async function create({ values, io, signal }: KeysInvocation): Promise<void> {
  const { tenant = 'default', purpose = 'docs', alg = 'hybrid' } = values;
  const policy = values['no-rotate'] === true ? { rotate: false } : undefined;
  const init = { tenant, purpose, alg, ...(policy !== undefined && { policy }) };
  const made = await withKms(values, io, signal, (client) => client.createKey(init));
  io.result(made.kid, made);
}

async function rotate({ values, io, signal }: KeysInvocation, [kid]: readonly string[]): Promise<void> {
  const rotated = await withKms(values, io, signal, (client) => client.rotateKey(kid!));
  io.result(rotated.kid, rotated);
}

async function list({ values, io, signal }: KeysInvocation): Promise<void> {
  const { tenant, prefix } = values;
  await withKms(values, io, signal, async (client) => {
    for await (const key of client.keys({ tenant, prefix })) {
      const state = key.state === 'enabled' ? '' : `, ${key.state}`;
      const rotation = key.rotate ? '' : ', not rotatable';
      io.result(columns([[key.kid, `${key.attestation_class}, ${key.versions.join(' ')}${state}${rotation}`]]), key);
    }
  });
}

async function show({ values, io, signal }: KeysInvocation, [kid]: readonly string[]): Promise<void> {
  printKey(io, await withKms(values, io, signal, (client) => client.key(kid!)));
}

async function disable({ values, io, signal }: KeysInvocation, [kid]: readonly string[]): Promise<void> {
  printKey(io, await withKms(values, io, signal, (client) => client.disableKey(kid!)));
}

async function enable({ values, io, signal }: KeysInvocation, [kid]: readonly string[]): Promise<void> {
  printKey(io, await withKms(values, io, signal, (client) => client.enableKey(kid!)));
}

async function minVersion(invocation: KeysInvocation, [kid, text]: readonly string[]): Promise<void> {
  const { values, io, signal } = invocation;
  const min_version = Number(text);
  if (!Number.isInteger(min_version) || min_version < 1)
    throw usage({ name: 'keys' }, `the minimum version must be a positive number, not ${text}`);
  const effect = `Signatures of versions below ${min_version} of ${kid} become invalid, and after the waiting period their data unreadable.`;
  if (min_version > 1) await confirm(invocation, 'keys', effect);
  printKey(io, await withKms(values, io, signal, (client) => client.setMinVersion(kid!, min_version)));
}

async function deleteKey(invocation: KeysInvocation, [kid]: readonly string[]): Promise<void> {
  const { values, io, signal } = invocation;
  const whole = splitKid(kid!)?.version === undefined;
  const destroyed = 'destroyed now and cannot be restored.';
  const effect = whole
    ? `${kid} stops working. If the waiting period of an earlier call is over, all its versions are ${destroyed}`
    : `If the waiting period of an earlier call is over, ${kid} is ${destroyed}`;
  await confirm(invocation, 'keys', effect);
  printDeletion(io, await withKms(values, io, signal, (client) => client.deleteKey(kid!, { whole })));
}

async function restore({ values, io, signal }: KeysInvocation, [kid]: readonly string[]): Promise<void> {
  printDeletion(io, await withKms(values, io, signal, (client) => client.restoreKey(kid!)));
}

async function exportKey({ values, io, signal }: KeysInvocation, [kid]: readonly string[]): Promise<void> {
  const { format = 'pem', output } = values;
  const key = await withKms(values, io, signal, (client) =>
    kid === undefined ? onlySigningKey(client) : client.key(kid),
  );
  const text = exported(key, format);
  if (output === undefined) return io.result(text, { kid: key.kid, format, text });
  try {
    await writeFile(output, `${text}\n`);
  } catch (error) {
    throw new CliError('no_output', `cannot write ${output} (${systemCode(error)})`);
  }
  return io.result(output, { kid: key.kid, format, file: output });
}

function exported({ kid, alg, public: key }: KeyInfo, format: string): string {
  const parts = partsOf(key);
  if (parts.length === 0) throw new CliError('usage', `${kid} is symmetric: it has no public key`);
  if (format === 'pem') return toPem(parts);
  if (format !== 'jwk' && format !== 'trust')
    throw usage({ name: 'keys' }, `--format must be pem, jwk or trust, not ${JSON.stringify(format)}`);
  if (alg === 'x-wing') throw new CliError('usage', 'keys of x-wing have no other format than pem');
  if (format === 'jwk') return JSON.stringify(toJwk(kid, parts));
  return [kid, ...parts.map(({ pubkey_b64 }) => pubkey_b64)].join(' ');
}

function printKey(io: KeysInvocation['io'], key: KeyInfo): void {
  const { kid, state, deletable_ms, versions, attestation_class, verify_mode } = key;
  const { min_version, min_version_unwrap, effective_ms } = key;
  const rows: [string, string][] = [
    ['key', kid],
    ['state', deletable_ms === undefined || state === 'deleted' ? state : `${state}, final from ${date(deletable_ms)}`],
    ['versions', `${versions.join(' ')}${key.rotate ? '' : ', not rotatable'}`],
    ...(key.deleting ?? []).map((each): [string, string] => [
      'deleting',
      `${each.version}, final from ${date(each.deletable_ms)}`,
    ]),
    ['custody', attestation_class],
    ['verify mode', verify_mode],
    ['min version', String(min_version)],
    ...(effective_ms === undefined
      ? []
      : [['for data', `${min_version_unwrap} until ${date(effective_ms)}`] satisfies [string, string]]),
  ];
  io.result(columns(rows), key);
}

function printDeletion(io: KeysInvocation['io'], deletion: KeyDeletion): void {
  const { kid, state, deletable_ms } = deletion;
  const text = {
    kept: `${kid} is kept`,
    pending: `${kid} can be deleted from ${date(deletable_ms ?? 0)}: then repeat the command, or cancel with \`ron keys restore\``,
    deleted: `${kid} was deleted`,
  }[state];
  io.result(text, deletion);
}

const date = (time_ms: number): string => new Date(time_ms).toISOString();
