/**
 * The keys that sign names: Ed25519 keys of kms with tenant `names` and purpose `raw`, which are never rotated.
 *
 * Contract: the first use creates the key, once even if two commands run at the same time. The empty prefix of the trust list
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
  return (await services.kms(allKeys)).filter(({ state }) => state === 'enabled').map(nameKeyOf);
}

/** The key that signs a label: `wanted` (a kid or a public key), or the trusted one, or the only one, or a new one. */
export async function keyFor(
  label: string,
  wanted: string | undefined,
  services: NodeServices,
  io: Pick<Io, 'note'>,
): Promise<NameKey> {
  const known = await nameKeys(services);
  if (wanted !== undefined) return ownKey(wanted, known);
  const trust = await trustList(services);
  const trusted = trust && trustedFor(label, trust);
  const chosen = known.find(({ key }) => key === trusted) ?? (known.length === 1 ? known[0] : undefined);
  const key = chosen ?? (known.length === 0 ? await createKey(services, io) : ambiguous(known));
  if (trust?.some(({ prefix }) => prefix === '') === false) {
    await services.index((index) => index.setTrust({ prefix: '', key: key.key }));
  }
  if (trusted !== undefined && trusted !== key.key) {
    io.note(`this node trusts another key for ${label}: readers need ${label}@${key.key}, or \`ron name trust\``);
  }
  return key;
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
  const made = await services.kms(async (kms) => {
    // A deleted first key must not be returned again.
    const isFirst = (await allKeys(kms)).length === 0;
    const init = { tenant: TENANT, purpose: PURPOSE, alg: ALG, policy: { rotate: false } };
    return await kms.createKey({ ...init, ...(isFirst && { op_id: FIRST_OP_ID }) });
  });
  io.note(`created the key of your names, ${made.kid}; back up .ron/kms: a lost key cannot be recovered`);
  return nameKeyOf(made);
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
