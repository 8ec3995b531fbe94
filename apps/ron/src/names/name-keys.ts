/**
 * The keys that sign names: Ed25519 keys of kms with tenant `names` and purpose `raw`, which are never rotated.
 *
 * Contract: the first use creates the key, once even if two commands run at the same time. A label that has a trusted key is
 * never signed by another one unless the caller names it: a key that is lost or disabled is refused. The empty prefix of the trust list
 * is set to the first key, so that bare labels resolve, if the capability allows it.
 */
import type { KmsClient } from '@ron/client';
import { isRonError } from '@ron/kernel/core';
import { isNameKey, prefixesOf, splitKid, type KeyInfo, type PublicKey, type TrustDto } from '@ron/proto';
import { CliError } from '../exits.ts';
import type { Io } from '../io.ts';
import type { NodeServices } from './node-services.ts';

const TENANT = 'names';
const PURPOSE = 'raw';
const ALG = 'ed25519';
/** Two first commands at the same time create one key. */
const FIRST_OP_ID = 'names-first-key';
const PUBLIC_BYTES = 32;

export interface NameKey {
  readonly kid: string;
  /** The public key in hex. */
  readonly key: string;
}

export async function nameKeys(services: NodeServices): Promise<readonly NameKey[]> {
  return enabled(await services.kms(allKeys));
}

/** The key that signs a label: `wanted` (a kid or a public key), or the trusted one, or the only one, or a new one. */
export async function keyFor(
  label: string,
  wanted: string | undefined,
  services: NodeServices,
  io: Pick<Io, 'note'>,
): Promise<NameKey> {
  if (wanted !== undefined) return ownKey(wanted, await nameKeys(services));
  // The trust list is read first: the key of another first command is in kms before the list names it.
  const trust = await trustList(services);
  const all = await services.kms(allKeys);
  const known = enabled(all);
  const trusted = trust && trustedFor(label, trust);
  if (trusted !== undefined) return known.find(({ key }) => key === trusted) ?? unusable(label, trusted, all);
  const key = known.length > 1 ? ambiguous(known) : (known[0] ?? (await firstKey(all, services, io)));
  if (trust?.some(({ prefix }) => prefix === '') === false) {
    await services.index((index) => index.setTrust({ prefix: '', key: key.key }));
  }
  return key;
}

/** A key is created only if there was none: names of a key that is disabled would silently get another one. */
async function firstKey(all: readonly KeyInfo[], services: NodeServices, io: Pick<Io, 'note'>): Promise<NameKey> {
  const disabled = all.find(({ state }) => state === 'disabled');
  if (disabled === undefined) return await createKey(services, io);
  throw new CliError('usage', `the key of your names is disabled: enable it with \`${enableCommand(disabled)}\``);
}

/** Another key would not do: readers of the bare label would not see its record. */
function unusable(label: string, trusted: string, all: readonly KeyInfo[]): never {
  const held = all.find((info) => nameKeyOf(info).key === trusted);
  const [why, action] =
    held?.state === 'disabled'
      ? ['is disabled', `enable it with \`${enableCommand(held)}\``]
      : ['is not in kms', 'restore it from the backup of kms'];
  throw new CliError(
    'usage',
    `this node trusts the key ${trusted} for ${label}, and it ${why}: ${action}, sign with another key by --key, ` +
      'or end the trust with `ron name trust rm PREFIX`',
  );
}

function enableCommand({ kid }: KeyInfo): string {
  return `ron keys enable ${splitKid(kid)?.name ?? kid}`;
}

function enabled(all: readonly KeyInfo[]): readonly NameKey[] {
  return all.filter(({ state }) => state === 'enabled').map(nameKeyOf);
}

/** Undefined if the capability may publish names, but not read the trust list. */
async function trustList(services: NodeServices): Promise<readonly TrustDto[] | undefined> {
  try {
    return await services.index((index) => index.trust());
  } catch (error) {
    if (isRonError(error, 'forbidden')) return undefined;
    throw error;
  }
}

/** One of the keys in kms, by its kid or its public key. */
function ownKey(text: string, known: readonly NameKey[]): NameKey {
  const found = known.find(({ kid, key }) => key === text || kid === text || splitKid(kid)?.name === text);
  if (found !== undefined) return found;
  throw new CliError('usage', `kms has no enabled key ${text} that signs names: list them with \`ron name keys\``);
}

/** A public key from the command line: in hex, or the kid of a key in kms. */
export async function publicKeyArg(text: string, services: NodeServices): Promise<string> {
  return isNameKey(text) ? text : ownKey(text, await nameKeys(services)).key;
}

function trustedFor(label: string, trust: readonly TrustDto[]): string | undefined {
  const keys = new Map(trust.map(({ prefix, key }) => [prefix, key]));
  for (const prefix of prefixesOf(label)) if (keys.has(prefix)) return keys.get(prefix);
  return undefined;
}

async function createKey(services: NodeServices, io: Pick<Io, 'note'>): Promise<NameKey> {
  return await services.kms(async (kms) => {
    const all = await allKeys(kms);
    const [other] = enabled(all);
    // Another first command has created it since the keys were listed.
    if (other !== undefined) return other;
    const init = { tenant: TENANT, purpose: PURPOSE, alg: ALG, policy: { rotate: false } };
    // A deleted first key must not be returned again.
    const made = await kms.createKey({ ...init, ...(all.length === 0 && { op_id: FIRST_OP_ID }) });
    io.note(`created the key of your names, ${made.kid}; back up ${services.kms_dir}: a lost key cannot be recovered`);
    return nameKeyOf(made);
  });
}

async function allKeys(kms: KmsClient): Promise<KeyInfo[]> {
  return await Array.fromAsync(kms.keys({ prefix: `${TENANT}/${PURPOSE}/${ALG}/` }));
}

/** The raw key is the end of its SubjectPublicKeyInfo. */
function nameKeyOf({ kid, public: { pubkey_b64 } }: { readonly kid: string; readonly public: PublicKey }): NameKey {
  return {
    kid,
    key: Buffer.from(pubkey_b64 ?? '', 'base64')
      .subarray(-PUBLIC_BYTES)
      .toString('hex'),
  };
}

function ambiguous(known: readonly NameKey[]): never {
  const kids = known.map(({ kid }) => kid).join(', ');
  throw new CliError('usage', `kms has ${known.length} keys that sign names: choose one with --key (${kids})`);
}
