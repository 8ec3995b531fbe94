/**
 * The strict reader of signed receipts.
 *
 * Contract: a receipt that it accepts has exactly the known fields, one spelling of every hash and signature, and one signature
 * per algorithm, all under one kid. Takes any value without accessors and never throws.
 * Bound: `RECEIPT_LIMITS.tree` leaves, `SIGNATURES_MAX` signatures of `SIGNATURE_CHARS_MAX`.
 */
import { RECEIPT_LIMITS, receiptProblem, splitKid, type ReceiptSignature, type SignedReceipt } from '@ron/proto';

const SIGNATURES_MAX = 4;
const SIGNATURE_CHARS_MAX = 8192;
const PATH_MAX = Math.ceil(Math.log2(RECEIPT_LIMITS.tree));
const HASH = /^[0-9a-f]{64}$/;
/** A refusal names it, so it holds no line break. */
const ALG = /^[a-z0-9-]{1,32}$/;

type Fields = Readonly<Partial<Record<string, unknown>>>;

/** The receipt, or the problem of the value. */
export function parseSignedReceipt(value: unknown): SignedReceipt | string {
  const problem =
    fieldsProblem(value, 'the file', ['receipt', 'tree', 'kid', 'sigs'], ['log_index', 'log_proof']) ??
    problemIn(value as Fields);
  return problem ?? (value as SignedReceipt);
}

function problemIn({ receipt, tree, kid, sigs, log_index, log_proof }: Fields): string | undefined {
  if (log_index !== undefined && !isCount(log_index)) return 'the log_index is not valid';
  if (log_proof !== undefined && !isObject(log_proof)) return 'the log_proof is not an object';
  return receiptProblem(receipt) ?? treeProblem(tree) ?? signaturesProblem(kid, sigs);
}

function treeProblem(tree: unknown): string | undefined {
  const problem = fieldsProblem(tree, 'the tree', ['size', 'index', 'leaf', 'path', 'root'], []);
  if (problem !== undefined) return problem;
  const { size, index, leaf, path, root } = tree as Fields;
  if (!isCount(size) || !isCount(index)) return 'the size or the index of the tree is not a number';
  if (!isHash(leaf)) return 'the leaf of the tree is not a hash';
  if (!isHash(root)) return 'the root of the tree is not a hash';
  // The copy has no holes, which `every` skips.
  if (Array.isArray(path) && path.length <= PATH_MAX && [...path].every(isHash)) return undefined;
  return 'the path of the tree is not a list of hashes';
}

function signaturesProblem(kid: unknown, sigs: unknown): string | undefined {
  if (typeof kid !== 'string' || splitKid(kid)?.version === undefined) return 'the kid does not name a key version';
  if (!Array.isArray(sigs) || sigs.length === 0 || sigs.length > SIGNATURES_MAX) return 'the file has no signatures';
  for (const sig of sigs) {
    const problem = fieldsProblem(sig, 'a signature', ['kid', 'alg', 'signature_b64'], []);
    if (problem !== undefined) return problem;
    const { kid: its, alg, signature_b64 } = sig as Fields;
    if (its !== kid) return 'a signature names another kid than the file';
    if (typeof alg !== 'string' || !ALG.test(alg)) return 'the alg of a signature is not the name of an algorithm';
    if (!isBase64(signature_b64)) return 'a signature is not base64';
  }
  const algs = new Set((sigs as readonly ReceiptSignature[]).map(({ alg }) => alg));
  return algs.size === sigs.length ? undefined : 'the file has two signatures of one algorithm';
}

function fieldsProblem(
  value: unknown,
  about: string,
  required: readonly string[],
  optional: readonly string[],
): string | undefined {
  if (!isObject(value)) return `${about} is not an object`;
  const missing = required.find((name) => !Object.hasOwn(value, name));
  if (missing !== undefined) return `${about} has no ${missing}`;
  const extra = Object.keys(value).find((name) => !required.includes(name) && !optional.includes(name));
  return extra === undefined ? undefined : `${about} has an unknown field: ${JSON.stringify(extra)}`;
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
/** `-0` is refused: it is equal to 0 and another text. */
const isCount = (value: unknown): boolean =>
  Number.isSafeInteger(value) && (value as number) >= 0 && !Object.is(value, -0);
const isHash = (value: unknown): boolean => typeof value === 'string' && HASH.test(value);

/** Two texts that differ only in unused bits must not be the same signature. */
function isBase64(value: unknown): boolean {
  if (typeof value !== 'string' || value.length === 0 || value.length > SIGNATURE_CHARS_MAX) return false;
  try {
    return Uint8Array.fromBase64(value).toBase64() === value;
  } catch {
    return false;
  }
}
