/**
 * The offline check of a signed receipt, for Node and browsers.
 *
 * Contract: `ok` means: the holder of the given keys signed a tree with exactly this receipt, and the body, if one is given, is
 * the one that was received. No key in the file is trusted: its kid is a claim, which only selects how many keys are needed.
 * Every given key must have signed; a hybrid kid needs both of its keys. `log_index` and `log_proof` are not covered by a
 * signature of the receipt and are not checked. Takes any value without accessors and never throws, except for an error of
 * `verify`. A `detail` is one line.
 * Bound: that of the reader; three signature checks at most per key.
 * WebCrypto verifies Ed25519 everywhere, ML-DSA in Node; a browser without ML-DSA gives `unsupported` unless the caller passes
 * `verify`.
 *
 *     const check = await checkReceipt(JSON.parse(text), { keys: [{ alg: 'ed25519', spki }, { alg: 'ml-dsa-65', spki: pq }], body });
 *     if (!check.ok) throw new Error(check.detail);
 */
import {
  RECEIPT_LIMITS,
  signedText,
  splitKid,
  type ReceiptTree,
  type SignedReceipt,
  type WebhookReceipt,
} from '@ron/proto';
import { addressOf } from '../object-hasher.ts';
import { parseSignedReceipt } from './parse-receipt.ts';
import { receiptLeaf, rootFromPath } from './receipt-tree.ts';

/** A public key that the caller trusts. */
export interface ReceiptKey {
  /** `ed25519` or `ml-dsa-65`. */
  readonly alg: string;
  /** DER SubjectPublicKeyInfo. */
  readonly spki: Uint8Array<ArrayBuffer>;
}

/** Whether a key signed a message. Rejects with a DOMException `NotSupportedError` if the algorithm is not available. */
export type VerifySignature = (
  key: ReceiptKey,
  message: Uint8Array<ArrayBuffer>,
  signature: Uint8Array<ArrayBuffer>,
) => Promise<boolean>;

export interface CheckReceiptInit {
  /** At least one; both of a hybrid key. */
  readonly keys: readonly ReceiptKey[];
  /** The body of the webhook, or its address and length. */
  readonly body?: Uint8Array | BodyFacts;
  /** Default: WebCrypto. */
  readonly verify?: VerifySignature;
}

export interface BodyFacts {
  /** `b3:<hex>`. */
  readonly b3: string;
  readonly bytes: number;
}

/**
 * | fault | meaning |
 * | --- | --- |
 * | `malformed` | not a signed receipt: a field is missing, unknown or not valid |
 * | `body` | the given body is not the one that was received |
 * | `receipt` | the receipt is not the one of the leaf |
 * | `size`, `index` | the size of the tree, or the place in it, is another one |
 * | `path` | the path does not lead from the leaf to the signed root |
 * | `root` | the file states another root than the one that was signed |
 * | `signature` | one signature is missing or not valid |
 * | `key` | no signature is valid, or a key of the kid was not given or is malformed |
 * | `unsupported` | an algorithm is not available here |
 */
export type ReceiptFault =
  | 'malformed'
  | 'body'
  | 'receipt'
  | 'size'
  | 'index'
  | 'path'
  | 'root'
  | 'signature'
  | 'key'
  | 'unsupported';

export interface ReceiptFacts {
  readonly receipt: WebhookReceipt;
  /** The name under which the keys signed. */
  readonly kid: string;
  readonly algs: readonly string[];
  readonly root: string;
  /** Whether a body was given; if so, it is the received one. */
  readonly has_body: boolean;
}

export type ReceiptCheck =
  | { readonly ok: true; readonly facts: ReceiptFacts }
  | { readonly ok: false; readonly fault: ReceiptFault; readonly detail: string };

type Refusal = ReceiptCheck & { readonly ok: false };

/** Maps, because an algorithm may be named like a member of every object. */
const CLAIMED: ReadonlyMap<string, readonly string[]> = new Map([['hybrid', ['ed25519', 'ml-dsa-65']]]);

export async function checkReceipt(value: unknown, init: CheckReceiptInit): Promise<ReceiptCheck> {
  const signed = parseSignedReceipt(value);
  if (typeof signed === 'string') return refuse('malformed', signed);
  const { receipt, tree, kid } = signed;
  const refusal = bodyRefusal(receipt, init.body) ?? leafRefusal(signed) ?? keyRefusal(signed, init.keys);
  if (refusal !== undefined) return refusal;
  const led = rootOf(tree, tree.index);
  try {
    if (led !== tree.root) return await treeRefusal(signed, led, init);
    if (tree.size !== 2 ** tree.path.length) {
      return refuse('size', `a path of ${tree.path.length} hashes does not belong to a tree of ${tree.size} leaves`);
    }
    const valid = await validAlgs(signed, tree.root, init);
    const algs = init.keys.map(({ alg }) => alg);
    const missing = algs.filter((alg) => !valid.includes(alg));
    if (missing.length > 0) return invalidSignature(missing, valid.length > 0);
    return { ok: true, facts: { receipt, kid, algs, root: tree.root, has_body: init.body !== undefined } };
  } catch (error) {
    return keyFailure(error);
  }
}

function bodyRefusal(receipt: WebhookReceipt, body: CheckReceiptInit['body']): Refusal | undefined {
  if (body === undefined) return undefined;
  const { b3, bytes } = body instanceof Uint8Array ? { b3: addressOf(body), bytes: body.length } : body;
  if (bytes !== receipt.bytes) {
    return refuse('body', `the body has ${bytes} bytes; the receipt is for a body of ${receipt.bytes}`);
  }
  return b3 === receipt.b3 ? undefined : refuse('body', `the body is ${b3}; the receipt is for ${receipt.b3}`);
}

function leafRefusal({ receipt, tree: { size, index, leaf } }: SignedReceipt): Refusal | undefined {
  if (size < 1 || size > RECEIPT_LIMITS.tree) {
    return refuse('size', `a tree has 1 to ${RECEIPT_LIMITS.tree} leaves, not ${size}`);
  }
  if (index >= size) return refuse('index', `a tree of ${size} leaves has no index ${index}`);
  if (receiptLeaf(receipt).toHex() === leaf) return undefined;
  return refuse('receipt', 'the receipt was changed: it is not the one of the leaf');
}

/** The given keys and the signatures in the file must be those that the kid needs. */
function keyRefusal({ kid, sigs }: SignedReceipt, keys: readonly ReceiptKey[]): Refusal | undefined {
  const { alg } = splitKid(kid)!;
  const claimed = CLAIMED.get(alg) ?? [alg];
  const given = keys.map((key) => key.alg);
  if (given.length === 0) return refuse('key', 'no public key was given');
  if (new Set(given).size !== given.length) return refuse('key', 'two keys of one algorithm were given');
  const unheld = claimed.find((each) => !given.includes(each));
  if (unheld !== undefined) return refuse('key', `${kid} claims ${unheld}, and no such public key was given`);
  const unsigned = given.find((each) => !sigs.some((sig) => sig.alg === each));
  if (unsigned !== undefined) return refuse('signature', `the file has no signature of ${unsigned}`);
  const extra = sigs.find((sig) => !given.includes(sig.alg));
  return extra && refuse('malformed', `the file has a signature of ${extra.alg}, for which no key was given`);
}

const rootOf = ({ leaf, path }: ReceiptTree, index: number): string =>
  rootFromPath(
    Uint8Array.fromHex(leaf),
    index,
    path.map((hash) => Uint8Array.fromHex(hash)),
  ).toHex();

/** Finds out which part was changed: only the signed root can have been signed. */
async function treeRefusal(signed: SignedReceipt, led: string, init: CheckReceiptInit): Promise<Refusal> {
  const { tree } = signed;
  for (let index = 0; index < 2 ** tree.path.length; index += 1) {
    if (rootOf(tree, index) === tree.root) return refuse('index', `the index was changed: the receipt is at ${index}`);
  }
  if ((await validAlgs(signed, led, init)).length === 0) {
    return refuse('path', 'the path was changed: it does not lead from the leaf to the root');
  }
  return refuse('root', 'the root was changed: the path leads to the root that was signed');
}

function invalidSignature(missing: readonly string[], isOneValid: boolean): Refusal {
  const names = missing.join(' and ');
  if (isOneValid) return refuse('signature', `the signature of ${names} is not valid`);
  return refuse(
    'key',
    `no valid signature of ${names}: another key signed, or the signatures, the kid or the root were changed`,
  );
}

async function validAlgs(
  { kid, sigs }: SignedReceipt,
  root: string,
  { keys, verify = verifyByWebCrypto }: CheckReceiptInit,
): Promise<readonly string[]> {
  const message = new TextEncoder().encode(signedText(kid, root));
  const valid: string[] = [];
  for (const key of keys) {
    const sig = sigs.find(({ alg }) => alg === key.alg)!;
    if (await verify(key, message, Uint8Array.fromBase64(sig.signature_b64))) valid.push(key.alg);
  }
  return valid;
}

const NAMES: ReadonlyMap<string, string> = new Map([['ed25519', 'Ed25519']]);

const verifyByWebCrypto: VerifySignature = async ({ alg, spki }, message, signature) => {
  const name = NAMES.get(alg) ?? alg.toUpperCase();
  const key = await crypto.subtle.importKey('spki', spki, { name }, false, ['verify']);
  return await crypto.subtle.verify({ name }, key, signature, message);
};

function keyFailure(error: unknown): Refusal {
  if (!(error instanceof DOMException)) throw error;
  if (error.name !== 'NotSupportedError') return refuse('key', 'a public key is malformed, or of another algorithm');
  return refuse('unsupported', 'this platform cannot verify an algorithm of the key: pass `verify`');
}

const refuse = (fault: ReceiptFault, detail: string): Refusal => ({ ok: false, fault, detail });
