/**
 * Capabilities: macaroons with a fixed beginning. Mints, attenuates and inspects them.
 *
 * Contract: a capability names its root key, its subject and the subject's epoch in its identifier, and begins with the
 * three caveats that bound it: audience, expiry, scopes. Any other macaroon is not a capability, even if its signature
 * is valid. `attenuate` and `inspectToken` need no key and no network.
 * Bound: `CAPABILITY_LIMITS`; a lifetime is clamped into its range.
 *
 *   identifier = ron1.<key id>.<subject>.<epoch>.<id, 16 random bytes in base64url>      issued by the node itself
 *              | ron2.<key id>.<subject>.<epoch>.<id>(.<id of an issuer>){1,4}           issued from another, nearest first
 */
import { isScope, isService, scopeService } from '@ron/proto';
import type { Scope, Service } from '@ron/proto';
import { assert, RonError, sched } from '@ron/kernel';
import { formatCaveat, isFactCaveat, parseCaveat, quote } from './caveats.ts';
import type { BodyCaveat, Caveat, FactCaveat, RateCaveat } from './caveats.ts';
import { isUsableKey, KEY_ID_PATTERN } from '../keys/key-ring.ts';
import type { KeySource } from '../keys/key-source.ts';
import { isFromFuture } from '../revocations/epochs.ts';
import { CAPABILITY_LIMITS as LIMITS } from './limits.ts';
import { addCaveat, decodeMacaroon, encodeMacaroon, newMacaroon, readUtf8 } from './macaroon.ts';
import type { Decoded, Macaroon } from './macaroon.ts';
import { decodeToken, encodeToken } from './token.ts';

const SUBJECT_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
export const CAPABILITY_ID_PATTERN = '^[A-Za-z0-9_-]{22}$';
const CAPABILITY_ID = new RegExp(CAPABILITY_ID_PATTERN);
const IDENTIFIER =
  /^ron([12])\.([a-z0-9]{1,32})\.([A-Za-z0-9_-]{1,64})\.(0|[1-9][0-9]{0,15})\.([A-Za-z0-9_-]{22})((?:\.[A-Za-z0-9_-]{22}){0,4})$/;
const ID_BYTES = 16;
const NO_ISSUERS: readonly string[] = Object.freeze([]);
const NOT_TEXT: Decoded<never> = { ok: false, reason: 'a caveat is not text' };

/** A caveat as a value, or in the text form that `parseCaveat` reads. */
export type CaveatLike = Caveat | string;

export interface MintInit {
  audience: Service;
  /** Scopes of that audience, at least one. */
  scopes: readonly Scope[];
  /** Lifetime. Clamped to between one second and 366 days. */
  ttl_ms: number;
  /** The latest expiry, Unix ms, even if it is below the minimum lifetime. Default: by the lifetime. */
  expires_ms_max?: number | undefined;
  /** The subject it is issued to: letters, digits, `_`, `-`. Used for revocation and audit. Default `-`. */
  subject?: string;
  /** The subject's revocation epoch at issue, at most `CLOCK_SKEW_MS` ahead of the clock. Default 0. */
  epoch?: number;
  /** The ids of the capabilities that it is issued from, nearest first. Default none. */
  chain?: readonly string[];
  /** Further restrictions. */
  caveats?: readonly CaveatLike[];
}

export interface Minted {
  /** The bearer secret. */
  readonly token: string;
  readonly capability_id: string;
  readonly expires_ms: number;
}

/** The contents of a token, without its signature. */
export interface Capability {
  readonly capability_id: string;
  /** The ids of the capabilities that it was issued from, nearest first. */
  readonly chain: readonly string[];
  readonly key_id: string;
  readonly subject: string;
  readonly epoch: number;
  readonly audience: Service;
  /** The intersection of its scope caveats. */
  readonly scopes: readonly string[];
  /** The earliest of its expiries. */
  readonly expires_ms: number;
  /** The parsed caveats, in order. */
  readonly caveats: readonly Caveat[];
  /** All caveats as text. */
  readonly texts: readonly string[];
  /** By position in the macaroon. */
  readonly rates: ReadonlyMap<number, RateCaveat>;
  readonly body_bytes_max: number | undefined;
  readonly bodies: readonly BodyCaveat[];
  readonly facts: readonly FactCaveat[];
  /** The reason to refuse it for every request: an unknown or malformed caveat. */
  readonly problem: string | undefined;
}

/** Mints with the audience's current key. */
export async function mint(keys: KeySource, init: MintInit, signal: AbortSignal): Promise<Minted> {
  const { key_id, key } = await keys.current(init.audience, signal);
  return mintWith(key, key_id, init);
}

/** Mints with a given audience key. */
export function mintWith(key: Uint8Array, key_id: string, init: MintInit): Minted {
  assert(isUsableKey(key), 'the key is live');
  assert(KEY_ID_PATTERN.test(key_id), 'the key id is well-formed');
  const { audience, scopes, subject = '-', epoch = 0, chain = [] } = init;
  if (!isService(audience)) throw invalid(`audience ${quote(String(audience))} is not a service`);
  if (scopes.length === 0) throw invalid('a capability requires at least one scope');
  for (const scope of scopes) {
    const fits = isScope(scope) && scopeService(scope) === audience;
    if (!fits) throw invalid(`${quote(scope)} is not a scope of ${audience}`);
  }
  if (!SUBJECT_PATTERN.test(subject)) throw invalid('a subject is 1 to 64 letters, digits, "_" or "-"');
  if (!Number.isSafeInteger(epoch) || epoch < 0) throw invalid('an epoch is an integer from 0');
  if (isFromFuture(epoch, sched.wall_ms())) throw invalid('an epoch is not in the future');
  if (chain.length > LIMITS.chain_max) throw invalid(`capabilities are issued over at most ${LIMITS.chain_max} steps`);
  assert(
    chain.every((id) => CAPABILITY_ID.test(id)),
    'the ids of the issuers are well-formed',
  );
  const expires_ms = Math.min(sched.wall_ms() + clampTtl_ms(init.ttl_ms), init.expires_ms_max ?? Infinity);
  const capability_id = newId();
  const ids = [capability_id, ...chain];
  const identifier = Buffer.from(`ron${ids.length > 1 ? 2 : 1}.${key_id}.${subject}.${epoch}.${ids.join('.')}`);
  const macaroon = withCaveats(newMacaroon(key, identifier), [
    { key: 'audience', service: audience },
    { key: 'expires', at_ms: expires_ms },
    { key: 'scopes', scopes },
    ...(init.caveats ?? []),
  ]);
  return { token: encodeToken(macaroon), capability_id, expires_ms };
}

/** Does not begin with `-`, so that it can be an argument of a command. */
function newId(): string {
  return Buffer.from(sched.randomBytes(ID_BYTES)).toString('base64url').replace(/^-/, 'A');
}

/** The token with more caveats. Works offline, without a key. */
export function attenuate(token: string, caveats: readonly CaveatLike[]): string {
  return encodeToken(withCaveats(readable(token), caveats));
}

/** The contents of a token in readable form. Does not verify the token. */
export function inspectToken(token: string): Capability & { readonly bytes: number } {
  const macaroon = readable(token);
  const capability = readCapability(macaroon);
  if (!capability.ok) throw invalid(`not a capability: ${capability.reason}`);
  return { ...capability.value, bytes: encodeMacaroon(macaroon).length };
}

/** Parses a macaroon as a capability. Does not verify it: `verifyChain` does. */
export function readCapability(macaroon: Macaroon): Decoded<Capability> {
  const identifier = IDENTIFIER.exec(Buffer.from(macaroon.identifier).toString('latin1'));
  const [, format, key_id = '', subject = '', epoch = '', capability_id = '', issuers = ''] = identifier ?? [];
  // One spelling per capability: the second format has at least one issuer.
  if (identifier === null || (format === '2') !== issuers.length > 0) {
    return { ok: false, reason: 'it has a foreign identifier' };
  }
  // The signature does not cover the location: accepting one would accept a modified token.
  if (macaroon.location !== undefined || macaroon.caveats.some((caveat) => caveat.location !== undefined)) {
    return { ok: false, reason: 'it has a location' };
  }
  if (macaroon.caveats.some((caveat) => caveat.vid !== undefined)) {
    return { ok: false, reason: 'it has a third-party caveat' };
  }
  const { caveats, texts, rates, problem } = readCaveats(macaroon);
  const [audience, expires, scopes] = caveats;
  if (audience?.key !== 'audience' || scopes?.key !== 'scopes' || expires?.key !== 'expires') {
    return { ok: false, reason: 'it does not begin with audience, expiry and scopes' };
  }
  return {
    ok: true,
    value: {
      capability_id,
      chain: issuers === '' ? NO_ISSUERS : issuers.slice(1).split('.'),
      key_id,
      subject,
      epoch: Number(epoch),
      audience: audience.service,
      ...boundsOf(caveats),
      caveats,
      texts,
      rates,
      problem,
    },
  };
}

function readCaveats(macaroon: Macaroon): Pick<Capability, 'caveats' | 'texts' | 'rates' | 'problem'> {
  const caveats: Caveat[] = [];
  const texts: string[] = [];
  const rates = new Map<number, RateCaveat>();
  let problem: string | undefined;
  for (const [index, { identifier }] of macaroon.caveats.entries()) {
    const text = readUtf8(identifier);
    texts.push(text ?? '(not text)');
    const parsed = text === undefined ? NOT_TEXT : parseCaveat(text);
    if (!parsed.ok) {
      problem ??= parsed.reason;
      continue;
    }
    caveats.push(parsed.value);
    if (parsed.value.key === 'rate') rates.set(index, parsed.value);
  }
  return { caveats, texts, rates, problem };
}

/** The strictest restriction of each kind. */
function boundsOf(
  caveats: readonly Caveat[],
): Pick<Capability, 'scopes' | 'expires_ms' | 'body_bytes_max' | 'bodies' | 'facts'> {
  let scopes: readonly string[] | undefined;
  let expires_ms = Number.MAX_SAFE_INTEGER;
  const ceilings: number[] = [];
  for (const caveat of caveats) {
    if (caveat.key === 'scopes') scopes = scopes?.filter((scope) => caveat.scopes.includes(scope)) ?? caveat.scopes;
    if (caveat.key === 'expires' || caveat.key === 'sent') expires_ms = Math.min(expires_ms, caveat.at_ms);
    if (caveat.key === 'bytes') ceilings.push(caveat.body_bytes_max);
  }
  const body_bytes_max = ceilings.length === 0 ? undefined : Math.min(...ceilings);
  const bodies = caveats.filter((caveat) => caveat.key === 'body');
  return { scopes: scopes ?? [], expires_ms, body_bytes_max, bodies, facts: caveats.filter(isFactCaveat) };
}

function withCaveats(macaroon: Macaroon, caveats: readonly CaveatLike[]): Macaroon {
  const narrowed = caveats.map(caveatBytes).reduce(addCaveat, macaroon);
  const readBack = decodeMacaroon(encodeMacaroon(narrowed));
  if (!readBack.ok) throw invalid(`the capability would exceed a limit: ${readBack.reason}`);
  return narrowed;
}

/** The bytes of a caveat that services understand. A mistake is refused here instead of when the token is used. */
function caveatBytes(caveat: CaveatLike): Uint8Array {
  const text = typeof caveat === 'string' ? caveat : formatCaveat(caveat);
  const parsed = parseCaveat(text);
  if (!parsed.ok) throw invalid(parsed.reason);
  const unknown = parsed.value.key === 'scopes' ? parsed.value.scopes.find((scope) => !isScope(scope)) : undefined;
  if (unknown !== undefined) throw invalid(`${quote(unknown)} is not a scope`);
  return Buffer.from(text);
}

function readable(token: string): Macaroon {
  const macaroon = decodeToken(token);
  if (!macaroon.ok) throw invalid(`not a capability: ${macaroon.reason}`);
  return macaroon.value;
}

function clampTtl_ms(ttl_ms: number): number {
  if (Number.isNaN(ttl_ms)) throw invalid('a lifetime is a number of milliseconds');
  return Math.round(Math.min(Math.max(ttl_ms, LIMITS.ttl_ms_min), LIMITS.ttl_ms_max));
}

function invalid(message: string): RonError {
  return new RonError('validation', message, { op: 'capability' });
}
