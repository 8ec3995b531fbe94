/**
 * Verifies the signature of a webhook.
 *
 * Contract: no request makes it throw. A request is accepted if one live secret made one of its
 * signatures over the exact bytes of its body. Every value of an accepted request is covered by that signature unless it has
 * the prefix `unsigned-`. `EXPIRED_TOKEN` is reported only for a valid signature, so a forger cannot probe the clock.
 * Digests are compared in constant time; the answer depends on which secret matched, never on how much of a digest did.
 * Bound: `INTEROP_LIMITS.signatures` signatures for each of `INTEROP_LIMITS.secrets` secrets. Overflow: `BAD_ORIGIN`. A forger
 * causes all of that work, up to 20 ms for 1 MiB; so `takeTurn` is called before each part of it, and `onEd25519` lets the
 * caller charge for Ed25519 checks. The JSON of a verified body is read in turns too.
 * Cancellation: rejects with the error of `takeTurn` or `onEd25519`.
 *
 *     const init = { scheme: 'github', secrets, wall_ms, tolerance_ms, takeTurn: (bytes) => turns.take(bytes, signal) };
 *     const verification = await verifyWebhook({ headerValues, body }, init);
 *     if (!verification.ok) throw new RonError('unauthorized', verification.detail, { reason: verification.reason });
 */
import { createHmac, timingSafeEqual, verify as verifyEd25519, type KeyObject } from 'node:crypto';
import { INTEROP_LIMITS, type GenericScheme, type SchemeName } from '@ron/proto';
import type { TakeTurn } from './json-members.ts';
import { parseGeneric } from './schemes/generic.ts';
import { parseGithub } from './schemes/github.ts';
import type { Parsed, SignedClaim } from './schemes/claim.ts';
import { parseSlack } from './schemes/slack.ts';
import { parseStandard } from './schemes/standard.ts';
import { parseStripe } from './schemes/stripe.ts';

export interface SignedRequest {
  /** The values of all header lines of this name, which is in lower case. */
  headerValues(name: string): readonly string[];
  /** The body, content-decoded, byte for byte. */
  readonly body: Uint8Array;
}

export interface LiveSecret {
  readonly version: number;
  readonly kind: 'hmac' | 'ed25519';
  readonly key: KeyObject;
}

export interface VerifyInit {
  readonly scheme: SchemeName;
  /** Required for the scheme `generic`; one that `requireGeneric` accepts. */
  readonly generic?: GenericScheme;
  readonly secrets: readonly LiveSecret[];
  readonly wall_ms: number;
  /** How far a signed time may differ from the clock. */
  readonly tolerance_ms: number;
  readonly takeTurn: TakeTurn;
  /** Called before each Ed25519 check, which costs more than most digests, and a forger nothing. May throw. */
  readonly onEd25519?: () => void;
}

export interface Verified {
  readonly ok: true;
  /** The version of the secret that made the signature. */
  readonly secret_version: number;
  /** The value that equal deliveries share: `id:<text>`, `b3:<hex>` or `b3:<hex>:<time>`. Always signed. */
  readonly dedup: string;
  /** With the prefix `unsigned-` unless it is signed. */
  readonly delivery_id?: string;
  /** The kind of event, with the prefix `unsigned-` unless it is signed. */
  readonly event?: string;
  /** The answer that slack expects to `url_verification`; nothing is queued then. */
  readonly challenge?: string;
  /** Whether success is 200 with an empty body. */
  readonly answers_empty: boolean;
}

export interface Refused {
  readonly ok: false;
  readonly reason: 'BAD_ORIGIN' | 'EXPIRED_TOKEN';
  /** A fixed text: it repeats nothing of the request or of a secret. */
  readonly detail: string;
}

export type Verification = Verified | Refused;

/** The schemes whose headers are fixed. */
const PARSERS: Readonly<Record<Exclude<SchemeName, 'generic'>, (request: SignedRequest) => Parsed>> = {
  github: parseGithub,
  slack: parseSlack,
  stripe: parseStripe,
  standard: parseStandard,
};

/** The bytes that are hashed without a pause: about 0.7 ms of SHA-256. */
const SLICE_BYTES = 256 * 1024;
/** An Ed25519 verification costs as much as the digest of this many bytes, besides that of the body. */
const ED25519_COST_BYTES = 48 * 1024;

export async function verifyWebhook(request: SignedRequest, init: VerifyInit): Promise<Verification> {
  const claim = parse(request, init);
  if (typeof claim === 'string') return badOrigin(claim);
  if (claim.signatures.length > INTEROP_LIMITS.signatures) return badOrigin('the request has too many signatures');
  const secret = await findSigner(claim, request.body, init);
  if (secret === undefined) return badOrigin('no live secret of the provider made the signature');
  if (claim.signed_s !== undefined && !isTimely(claim.signed_s, init))
    return { ok: false, reason: 'EXPIRED_TOKEN', detail: 'the signed time is too far from the clock of this node' };
  return { ok: true, secret_version: secret.version, ...(await claim.describe(init.takeTurn)) };
}

const badOrigin = (detail: string): Refused => ({ ok: false, reason: 'BAD_ORIGIN', detail });

function parse(request: SignedRequest, { scheme, generic }: VerifyInit): Parsed {
  if (scheme !== 'generic') return PARSERS[scheme](request);
  return generic === undefined ? 'the provider has no template' : parseGeneric(request, generic);
}

/** The secret that made one of the signatures. A secret is tried only on signatures of its own kind. */
async function findSigner(claim: SignedClaim, body: Uint8Array, init: VerifyInit): Promise<LiveSecret | undefined> {
  for (const secret of init.secrets) {
    const signatures = claim.signatures.filter(({ kind }) => kind === secret.kind).map(({ bytes }) => bytes);
    if (signatures.length === 0) continue;
    const madeOne = secret.kind === 'ed25519' ? madeEd25519 : madeHmac;
    if (await madeOne(signatures, claim, body, secret.key, init)) return secret;
  }
  return undefined;
}

async function madeEd25519(
  signatures: readonly Uint8Array[],
  { prefix }: SignedClaim,
  body: Uint8Array,
  key: KeyObject,
  { takeTurn, onEd25519 }: VerifyInit,
): Promise<boolean> {
  const signed = Buffer.concat([Buffer.from(prefix), body]);
  for (const signature of signatures) {
    // [interop I-7] Each of them hashes the whole body.
    await takeTurn(ED25519_COST_BYTES + body.length);
    onEd25519?.();
    if (verifyEd25519(null, signed, key, signature)) return true;
  }
  return false;
}

async function madeHmac(
  signatures: readonly Uint8Array[],
  { prefix, algorithm }: SignedClaim,
  body: Uint8Array,
  key: KeyObject,
  { takeTurn }: VerifyInit,
): Promise<boolean> {
  const hmac = createHmac(algorithm, key).update(prefix);
  for (let at = 0; at < body.length; at += SLICE_BYTES) {
    const slice = body.subarray(at, at + SLICE_BYTES);
    await takeTurn(slice.length);
    hmac.update(slice);
  }
  const digest = hmac.digest();
  return signatures.some((signature) => signature.length === digest.length && timingSafeEqual(signature, digest));
}

/** Compares whole seconds, as the libraries of the vendors do; both ends of the window are inside. */
function isTimely(signed_s: number, { wall_ms, tolerance_ms }: VerifyInit): boolean {
  return Math.abs(Math.floor(wall_ms / 1000) - signed_s) * 1000 <= tolerance_ms;
}
