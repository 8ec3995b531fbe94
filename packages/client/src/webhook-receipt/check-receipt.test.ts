import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { SignedReceipt, WebhookReceipt } from '@ron/proto';
import { checkReceipt, type CheckReceiptInit, type ReceiptFault } from './check-receipt.ts';
import { KID, newKeys, receiptOf, signedReceipt } from './testing.ts';

const keys = newKeys();
const BODY = new TextEncoder().encode('{"zen":"Design for failure."}');
const RECEIPTS = Array.from({ length: 21 }, (_, at) => receiptOf(at, BODY));
const INDEX = 5;
const signed = signedReceipt(RECEIPTS, INDEX, keys);

async function faultOf(value: unknown, init: Partial<CheckReceiptInit> = {}): Promise<ReceiptFault | 'ok'> {
  const check = await checkReceipt(value, { keys, ...init });
  if (check.ok) return 'ok';
  assert.ok(check.detail.length > 10, 'a refusal has a reason');
  return check.fault;
}

/** A copy with one part changed. */
function withPart(change: (copy: Mutable) => void): unknown {
  const copy = JSON.parse(JSON.stringify(signed)) as Mutable;
  change(copy);
  return copy;
}
interface Mutable {
  receipt: Record<string, unknown>;
  tree: { size: number; index: number; leaf: string; path: string[]; root: string };
  kid: string;
  sigs: { kid: string; alg: string; signature_b64: string }[];
  [other: string]: unknown;
}

const flippedHex = (hex: string, bit: number): string => {
  const bytes = Uint8Array.fromHex(hex);
  bytes[bit >> 3]! ^= 1 << (bit & 7);
  return bytes.toHex();
};
const flippedBase64 = (text: string, bit: number): string => {
  const bytes = Uint8Array.fromBase64(text);
  bytes[bit >> 3]! ^= 1 << (bit & 7);
  return bytes.toBase64();
};

test('a signed receipt holds for the keys that signed it, with its body and without', async () => {
  const check = await checkReceipt(JSON.parse(JSON.stringify(signed)), { keys, body: BODY });
  assert.ok(check.ok);
  assert.deepEqual(check.facts, {
    receipt: RECEIPTS[INDEX],
    kid: KID,
    algs: ['ed25519', 'ml-dsa-65'],
    root: signed.tree.root,
    has_body: true,
  });
  const facts = { b3: signed.receipt.b3, bytes: BODY.length };
  assert.equal(await faultOf(signed, { body: facts }), 'ok');
  assert.equal(await faultOf({ ...signed, log_proof: { log_index: 7 } }), 'ok');
  const { log_index: _, ...unlogged } = signed;
  assert.equal(await faultOf(unlogged), 'ok', 'kms may not have logged it yet');
});

test('each changed part is refused with its own reason', async () => {
  const cases: readonly (readonly [ReceiptFault, (copy: Mutable) => void])[] = [
    ['receipt', ({ receipt }) => (receipt['received_ms'] = 1_800_000_000_000)],
    ['receipt', ({ receipt }) => (receipt['topic'] = 'hooks.other')],
    ['receipt', ({ receipt }) => (receipt['delivery_id'] = 'added')],
    ['receipt', ({ tree }) => (tree.leaf = flippedHex(tree.leaf, 9))],
    ['path', ({ tree }) => (tree.path[1] = flippedHex(tree.path[1]!, 77))],
    ['path', ({ tree }) => tree.path.pop()],
    ['path', ({ tree }) => tree.path.push(tree.root)],
    ['index', ({ tree }) => (tree.index = 6)],
    ['index', ({ tree }) => (tree.index = 21)],
    ['index', ({ tree }) => (tree.index = 32)],
    ['size', ({ tree }) => (tree.size = 31)],
    ['size', ({ tree }) => (tree.size = 33)],
    ['size', ({ tree }) => (tree.size = 64)],
    ['size', ({ tree }) => (tree.size = 0)],
    ['size', ({ tree }) => (tree.size = 129)],
    ['root', ({ tree }) => (tree.root = flippedHex(tree.root, 0))],
    ['signature', ({ sigs }) => (sigs[0]!.signature_b64 = flippedBase64(sigs[0]!.signature_b64, 100))],
    ['signature', ({ sigs }) => (sigs[1]!.signature_b64 = flippedBase64(sigs[1]!.signature_b64, 100))],
    ['signature', ({ sigs }) => sigs.pop()],
    ['signature', ({ sigs }) => sigs.shift()],
  ];
  for (const [fault, change] of cases) assert.equal(await faultOf(withPart(change)), fault, String(change));
});

test('a changed receipt with a new leaf, and a kid that a client renamed, are refused', async () => {
  const other = signedReceipt([{ ...RECEIPTS[INDEX]!, bytes: 1 }], 0, keys);
  const forged = withPart((copy) => {
    copy.receipt = other.receipt as unknown as Record<string, unknown>;
    copy.tree.leaf = other.tree.leaf;
  });
  assert.equal(await faultOf(forged), 'path');
  const renamed = JSON.parse(JSON.stringify(signed).replaceAll('interop/receipts', 'acme/receipts')) as unknown;
  assert.equal(await faultOf(renamed), 'key');
});

test('another body is refused, by its length or by its hash', async () => {
  assert.equal(await faultOf(signed, { body: BODY.subarray(1) }), 'body');
  assert.equal(await faultOf(signed, { body: BODY.map((byte) => byte ^ 1) }), 'body');
});

test('no key in the file is trusted: another key, half of a hybrid key and no key are refused', async () => {
  const others = newKeys();
  assert.equal(await faultOf(signed, { keys: others }), 'key');
  assert.equal(await faultOf(signed, { keys: [keys[0]!, others[1]!] }), 'signature');
  assert.equal(await faultOf(signed, { keys: [others[0]!, keys[1]!] }), 'signature');
  assert.equal(await faultOf(signed, { keys: [keys[0]!] }), 'key');
  assert.equal(await faultOf(signed, { keys: [keys[1]!] }), 'key');
  assert.equal(await faultOf(signed, { keys: [] }), 'key');
  assert.equal(await faultOf(signed, { keys: [{ ...keys[0]!, spki: keys[1]!.spki }, keys[1]!] }), 'key');
  const own = JSON.parse(JSON.stringify(signedReceipt(RECEIPTS, INDEX, others))) as object;
  assert.equal(await faultOf({ ...own, keys: others.map(({ spki }) => spki.toBase64()) }), 'malformed');
});

test('a forger who breaks Ed25519 cannot claim that the key was never hybrid', async () => {
  const kid = KID.replace('hybrid', 'ed25519');
  const plain = signedReceipt(RECEIPTS, INDEX, keys.slice(0, 1), kid);
  assert.equal(await faultOf(plain, { keys: keys.slice(0, 1) }), 'ok');
  assert.equal(await faultOf(plain, { keys }), 'signature');
});

test('missing and unknown fields and other spellings are malformed, at every level', async () => {
  const missing = (from: object): string[] =>
    Object.keys(from).filter((name) => name !== 'log_index' && name !== 'delivery_id');
  for (const name of missing(signed))
    assert.equal(await faultOf(withPart((copy) => delete copy[name])), 'malformed', name);
  for (const name of missing(signed.receipt))
    assert.equal(await faultOf(withPart(({ receipt }) => delete receipt[name])), 'malformed', name);
  for (const name of missing(signed.tree))
    assert.equal(await faultOf(withPart(({ tree }) => Reflect.deleteProperty(tree, name))), 'malformed', name);
  for (const name of missing(signed.sigs[0]!))
    assert.equal(await faultOf(withPart(({ sigs }) => Reflect.deleteProperty(sigs[0]!, name))), 'malformed', name);
  const cases: readonly ((copy: Mutable) => unknown)[] = [
    (copy) => (copy['more'] = 1),
    ({ receipt }) => (receipt['more'] = 1),
    ({ tree }) => Object.assign(tree, { more: 1 }),
    ({ sigs }) => Object.assign(sigs[1]!, { more: 1 }),
    ({ tree }) => (tree.root = tree.root.toUpperCase()),
    ({ tree }) => (tree.leaf = `${tree.leaf}00`),
    ({ tree }) => (tree.size = 20.5),
    ({ tree }) => (tree.index = -1),
    ({ receipt }) => (receipt['bytes'] = '29'),
    ({ receipt }) => (receipt['id'] = 'x'),
    ({ receipt }) => (receipt['scheme'] = 'other'),
    ({ sigs }) => (sigs[0]!.signature_b64 = ` ${sigs[0]!.signature_b64}`),
    ({ sigs }) => (sigs[0]!.signature_b64 = sigs[0]!.signature_b64.replace(/=+$/, '')),
    ({ sigs }) => (sigs[0]!.kid = sigs[0]!.kid.replace('#v1', '#v2')),
    ({ sigs }) => (sigs[1]!.alg = 'ed25519'),
    ({ sigs }) => sigs.push({ ...sigs[0]!, alg: 'ml-dsa-87' }),
    (copy) => (copy.kid = copy.kid.replace('#v1', '')),
    (copy) => (copy['log_index'] = '7'),
    (copy) => (copy['log_proof'] = []),
  ];
  for (const change of cases) assert.equal(await faultOf(withPart(change)), 'malformed', String(change));
  for (const value of [undefined, null, 1, '', [], {}, [signed]]) assert.equal(await faultOf(value), 'malformed');
});

test('lists with holes, and an alg that is not a name, are malformed; no refusal has a second line', async () => {
  const changes: ((copy: Mutable) => void)[] = [
    // oxlint-disable-next-line unicorn/no-new-array -- its elements are holes
    (copy) => void (copy.tree.path = new Array<string>(copy.tree.path.length)),
    (copy) => void (copy.tree.path.length += 1),
    (copy) => void (copy.sigs.length += 1),
    (copy) => void (copy.sigs[0]!.alg = 'x\nvalid: signed by the key'),
    (copy) => void (copy.sigs[0]!.alg = '\u009b31m'),
    (copy) => void (copy.sigs[0]!.alg = ''),
    (copy) => void (copy['x\ny'] = 1),
    (copy) => void (copy.receipt['x\ny'] = 1),
    (copy) => void (copy.kid = `${copy.kid}\n`),
  ];
  for (const change of changes) {
    const check = await checkReceipt(withPart(change), { keys });
    assert.ok(!check.ok && check.fault === 'malformed', String(change));
    assert.doesNotMatch(check.detail, /[\n\u0080-\u009f]/);
  }
});

test('the keys of an object in another order are the same receipt', async () => {
  const reversed = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(reversed);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value)
        .toReversed()
        .map(([name, part]) => [name, reversed(part)]),
    );
  };
  assert.equal(await faultOf(reversed(signed)), 'ok');
});

test('an algorithm that the platform lacks is reported, and a caller can verify it itself', async () => {
  const verify = (): Promise<boolean> => Promise.reject(new DOMException('no ML-DSA', 'NotSupportedError'));
  assert.equal(await faultOf(signed, { verify }), 'unsupported');
  const calls: string[] = [];
  const own = async ({ alg }: { alg: string }): Promise<boolean> => calls.push(alg) > 0;
  assert.equal(await faultOf(signed, { verify: own }), 'ok');
  assert.deepEqual(calls, ['ed25519', 'ml-dsa-65']);
});

test('a kid whose algorithm is a member of every object is refused', async () => {
  for (const alg of ['constructor', 'tostring', '__proto__', 'hasownproperty', 'toString']) {
    const copy = withPart((file) => {
      file.kid = KID.replace('hybrid', alg);
      for (const sig of file.sigs) sig.kid = file.kid;
    });
    const fault = await faultOf(copy);
    assert.ok(fault === 'key' || fault === 'malformed', `${alg}: ${fault}`);
  }
});

test('-0 is not a number of a receipt', async () => {
  const first = signedReceipt(RECEIPTS, 0, keys);
  const secret = signedReceipt([{ ...RECEIPTS[0]!, secret_version: 0, bytes: 0 }], 0, keys);
  assert.deepEqual([await faultOf(first), await faultOf(secret)], ['ok', 'ok']);
  assert.equal(await faultOf({ ...first, tree: { ...first.tree, index: -0 } }), 'malformed');
  assert.equal(await faultOf({ ...first, tree: { ...first.tree, size: -0 } }), 'malformed');
  assert.equal(await faultOf({ ...first, log_index: -0 }), 'malformed');
  for (const field of ['secret_version', 'bytes', 'received_ms'])
    assert.equal(await faultOf({ ...secret, receipt: { ...secret.receipt, [field]: -0 } }), 'malformed', field);
});

test('a check of changed JSON never throws', async () => {
  const paths = pathsOf(JSON.parse(JSON.stringify(signed)), []);
  const names = fc.constantFrom('constructor', '__proto__', 'toString', 'valueOf', 'hybrid', 'ed25519', 'ml-dsa-65');
  const values = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    names,
    names.map((alg) => KID.replace('hybrid', alg.toLowerCase())),
    fc.constantFrom(-0, -1, 0.5, 2 ** 53, '', 'AAAA', 'A'.repeat(9000), '0'.repeat(64)),
  );
  const change = fc.record({ path: fc.constantFrom(...paths), value: values, adds: fc.boolean(), name: names });
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 3 }), async (changes) => {
      const file: unknown = JSON.parse(JSON.stringify({ file: signed }));
      for (const { path, value, adds, name } of changes) setAt(file, adds ? [...path, name] : path, value);
      // Not equal to the original, unless a value was replaced by itself or only the log, which is not signed, was changed.
      const check = await checkReceipt((file as { file: unknown }).file, { keys, body: BODY });
      assert.equal(typeof check.ok, 'boolean');
    }),
    { numRuns: Number(process.env['RON_FUZZ_RUNS'] ?? 500) },
  );
});

function pathsOf(value: unknown, path: readonly string[]): (readonly string[])[] {
  const below = typeof value === 'object' && value !== null ? Object.entries(value) : [];
  return [['file', ...path], ...below.flatMap(([name, each]) => pathsOf(each, [...path, name]))];
}

/** Adds own fields also under the names of inherited ones, as `JSON.parse` does. */
function setAt(root: unknown, path: readonly string[], value: unknown): void {
  let parent = root;
  for (const name of path.slice(0, -1)) {
    if (typeof parent !== 'object' || parent === null || !Object.hasOwn(parent, name)) return;
    parent = (parent as Record<string, unknown>)[name];
  }
  if (typeof parent !== 'object' || parent === null) return;
  const own = { value, enumerable: true, configurable: true, writable: true };
  if (!Array.isArray(parent) || /^\d+$/.test(path.at(-1)!)) Object.defineProperty(parent, path.at(-1)!, own);
}

/** Ed25519 only: the property is about the bits, and each run checks signatures. */
test('no single bit of a receipt file can change', async () => {
  const [key] = keys;
  const kid = KID.replace('hybrid', 'ed25519');
  const holds = async (text: string): Promise<SignedReceipt | undefined> => {
    try {
      const value = JSON.parse(text) as SignedReceipt;
      return (await faultOf(value, { keys: [key!] })) === 'ok' ? value : undefined;
    } catch {
      return undefined;
    }
  };
  const covered = ({ receipt, tree, kid: name, sigs }: SignedReceipt): string =>
    JSON.stringify([receipt, tree, name, sigs]);
  const shapes = fc
    .integer({ min: 1, max: 128 })
    .chain((size) => fc.record({ size: fc.constant(size), index: fc.nat({ max: size - 1 }), bit: fc.nat() }));
  await fc.assert(
    fc.asyncProperty(shapes, async ({ size, index, bit }) => {
      const receipts: WebhookReceipt[] = Array.from({ length: size }, (_, at) => receiptOf(at));
      const file = signedReceipt(receipts, index, [key!], kid);
      const bytes = new TextEncoder().encode(JSON.stringify(file));
      assert.ok(await holds(new TextDecoder().decode(bytes)));
      const at = bit % (bytes.length * 8);
      bytes[at >> 3]! ^= 1 << (at & 7);
      const found = await holds(new TextDecoder().decode(bytes));
      // Only the index of the log, which no signature covers, may be another one.
      if (found !== undefined) assert.equal(covered(found), covered(file));
    }),
    { numRuns: 300 },
  );
});
