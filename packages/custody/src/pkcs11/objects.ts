/**
 * Objects in a token: templates that keep keys in the token, and lookups.
 *
 * Contract: a key is created private, sensitive and not extractable, with its name in `CKA_ID`.
 */
import type { Alg } from '../algorithms/algorithms.ts';
import { CKA, CKK, CKM, CKO, CKR } from './constants.ts';
import { CryptokiError, type Attribute, type Cryptoki, type Handle } from './cryptoki.ts';

export const HMAC_BYTES = 32;
export const RSA_BITS = 2048;
/** The curve as an object identifier, and as a name for modules that require that. */
const CURVE_BY_OID = Buffer.from('06032b6570', 'hex');
const CURVE_BY_NAME = Buffer.from('130c656477617264733235353139', 'hex');

/** Return values that mean that the session, or an object of it, is no longer valid. */
export const LOST = new Set<number>([
  CKR.HOST_MEMORY,
  CKR.SLOT_ID_INVALID,
  CKR.GENERAL_ERROR,
  CKR.FUNCTION_FAILED,
  CKR.DEVICE_ERROR,
  CKR.DEVICE_REMOVED,
  CKR.KEY_HANDLE_INVALID,
  CKR.OBJECT_HANDLE_INVALID,
  CKR.OPERATION_ACTIVE,
  CKR.OPERATION_NOT_INITIALIZED,
  CKR.SESSION_CLOSED,
  CKR.SESSION_COUNT,
  CKR.SESSION_HANDLE_INVALID,
  CKR.TOKEN_NOT_PRESENT,
  CKR.TOKEN_NOT_RECOGNIZED,
  CKR.USER_NOT_LOGGED_IN,
  CKR.CRYPTOKI_NOT_INITIALIZED,
]);
/**
 * How a token stores a secret. A TPM behind tpm2-pkcs11 cannot create symmetric keys and stores an RSA key instead: its
 * deterministic signature over a fixed text is known to the token only, so the hash of that signature serves as the secret.
 * That secret is then in the memory of this process during each call.
 */
export type Kept = 'hmac' | 'rsa';

/** How new secrets are stored; undefined if these mechanisms cannot store one. */
export function keptAs(mechanisms: ReadonlySet<number>): Kept | undefined {
  if (mechanisms.has(CKM.GENERIC_SECRET_KEY_GEN) && mechanisms.has(CKM.SHA256_HMAC)) return 'hmac';
  return mechanisms.has(CKM.RSA_PKCS_KEY_PAIR_GEN) && mechanisms.has(CKM.SHA256_RSA_PKCS) ? 'rsa' : undefined;
}

/** The algorithms that these mechanisms support. */
export function algsOf(mechanisms: ReadonlySet<number>): Alg[] {
  const has = (...all: number[]): boolean => all.every((mechanism) => mechanisms.has(mechanism));
  const algs: Alg[] = [];
  if (has(CKM.EC_EDWARDS_KEY_PAIR_GEN, CKM.EDDSA)) algs.push('ed25519');
  if (keptAs(mechanisms) !== undefined) algs.push('hmac-sha256', 'aes-256-gcm');
  return algs;
}

export const byName = (name: string): Attribute[] => [
  [CKA.TOKEN, true],
  [CKA.ID, Buffer.from(name)],
];

/**
 * Finds all objects with these attributes. A token hides private objects without a login, so a missing object proves nothing
 * unless the session was logged in before and after the search: other threads may log out and in meanwhile.
 */
export function search(cryptoki: Cryptoki, session: Handle, attributes: readonly Attribute[]): Handle[] {
  requireLogin(cryptoki, session);
  const found = cryptoki.find(session, attributes);
  requireLogin(cryptoki, session);
  return found;
}

export function requireLogin(cryptoki: Cryptoki, session: Handle): void {
  if (!cryptoki.isLoggedIn(session)) throw new CryptokiError('C_GetSessionInfo', CKR.USER_NOT_LOGGED_IN);
}

export function findKey(cryptoki: Cryptoki, session: Handle, name: string): Handle | undefined {
  const find = (kind: number): Handle | undefined => search(cryptoki, session, [...byName(name), [CKA.CLASS, kind]])[0];
  return find(CKO.PRIVATE_KEY) ?? find(CKO.SECRET_KEY);
}

/** Attributes that keep a key in the token. */
const staying = (name: string, label: string): Attribute[] => [
  ...byName(name),
  [CKA.LABEL, Buffer.from(label)],
  [CKA.PRIVATE, true],
  [CKA.SENSITIVE, true],
  [CKA.EXTRACTABLE, false],
];

export function generateEdwards(cryptoki: Cryptoki, session: Handle, name: string, label: string): Handle {
  const generate = (curve: Uint8Array): Handle =>
    generatePair(cryptoki, session, CKM.EC_EDWARDS_KEY_PAIR_GEN, name, label, [[CKA.EC_PARAMS, curve]]);
  try {
    return generate(CURVE_BY_OID);
  } catch (error) {
    if (!(error instanceof CryptokiError) || LOST.has(error.result)) throw error;
    return generate(CURVE_BY_NAME);
  }
}

export function generateSecret(
  cryptoki: Cryptoki,
  session: Handle,
  name: string,
  label: string,
  mechanisms: ReadonlySet<number>,
): Handle {
  if (keptAs(mechanisms) === 'rsa') {
    return generatePair(cryptoki, session, CKM.RSA_PKCS_KEY_PAIR_GEN, name, label, [
      [CKA.MODULUS_BITS, RSA_BITS],
      [CKA.PUBLIC_EXPONENT, Uint8Array.of(1, 0, 1)],
    ]);
  }
  return cryptoki.generateKey(session, CKM.GENERIC_SECRET_KEY_GEN, [
    [CKA.CLASS, CKO.SECRET_KEY],
    ...staying(name, label),
    [CKA.KEY_TYPE, CKK.GENERIC_SECRET],
    [CKA.VALUE_LEN, HMAC_BYTES],
    [CKA.SIGN, true],
  ]);
}

function generatePair(
  cryptoki: Cryptoki,
  session: Handle,
  mechanism: number,
  name: string,
  label: string,
  attributes: readonly Attribute[],
): Handle {
  const publicPart: Attribute[] = [...byName(name), [CKA.LABEL, Buffer.from(label)], [CKA.VERIFY, true], ...attributes];
  const privatePart: Attribute[] = [...staying(name, label), [CKA.SIGN, true]];
  return cryptoki.generateKeyPair(session, mechanism, publicPart, privatePart).privateKey;
}

export function isTrue(cryptoki: Cryptoki, session: Handle, object: Handle, type: number): boolean {
  return cryptoki.attribute(session, object, type, 1)[0] !== 0;
}
