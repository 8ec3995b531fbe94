/** `ron receipt`: a fetched receipt can be verified offline, with the keys that the user gives and no other. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { addressOf } from '@ron/client';
import { receiptLeaf, treePath, treeRoot } from '@ron/client/webhook-receipt';
import { signedText, type SignedReceipt, type WebhookReceipt } from '@ron/proto';
import { fuzzRuns, tempDirFor } from '@ron/testkit';
import { answer, FakeInterop } from './fixtures/fake-interop.ts';
import { command, temporaryDir } from './support.ts';

const KID = 'interop/receipts/hybrid/0b0c3f0e-1f5e-4c57-9c32-3a3f5a3d9a10#v1';
const ID = '01JQZ3QW5T0000000000000001';
const BODY = Buffer.from('{"zen":"Keep it logically awesome."}');

function newKeys() {
  return ['ed25519', 'ml-dsa-65'].map((alg) => {
    // The overloads do not know all algorithms together.
    const { publicKey, privateKey } = generateKeyPairSync(alg as 'ed25519');
    return { alg, privateKey, pem: publicKey.export({ type: 'spki', format: 'pem' }), publicKey };
  });
}

const derOf = (key: KeyObject): string => key.export({ type: 'spki', format: 'der' }).toString('base64');

function signedReceipt(keys: ReturnType<typeof newKeys>, more: Partial<WebhookReceipt> = {}): SignedReceipt {
  const receipt: WebhookReceipt = {
    id: ID,
    provider: 'github',
    scheme: 'github',
    secret_version: 1,
    received_ms: 1_800_000_000_000,
    b3: addressOf(BODY),
    bytes: BODY.length,
    topic: 'hooks.github',
    ...more,
  };
  const leaves = [receiptLeaf(receipt), receiptLeaf({ ...receipt, bytes: 1 })];
  const root = Buffer.from(treeRoot(leaves)).toString('hex');
  const hex = (hash: Uint8Array): string => Buffer.from(hash).toString('hex');
  const sigs = keys.map(({ alg, privateKey }) => {
    const signature = sign(null, Buffer.from(signedText(KID, root)), privateKey);
    return { kid: KID, alg, signature_b64: signature.toString('base64') };
  });
  const tree = { size: 2, index: 0, leaf: hex(leaves[0]!), path: treePath(leaves, 0).map(hex), root };
  return { receipt, tree, kid: KID, sigs };
}

test('a fetched receipt verifies offline; a changed one, another body and another key exit with 65', async (t) => {
  const fake = await FakeInterop.open(t);
  const [keys, others] = [newKeys(), newKeys()];
  const at = (name: string): string => join(fake.dir, name);
  fake.routes.set(`GET /receipts/${ID}`, (_request, response) => answer(response, 200, signedReceipt(keys)));
  const got = await command(['receipt', 'get', ID, '-o', at('receipt.json'), ...fake.flags]);
  assert.equal(got.code, 0, got.stderr);
  await writeFile(at('key.pem'), keys.map(({ pem }) => pem).join('\n'));
  await writeFile(at('other.pem'), others.map(({ pem }) => pem).join('\n'));
  const der = keys.map(({ publicKey }) => derOf(publicKey));
  await writeFile(at('trust'), `${KID} ${der.join(' ')}\n`, { mode: 0o600 });
  await writeFile(at('body'), BODY);
  const verify = (...args: string[]) => command(['receipt', 'verify', ...args]);
  const good = await verify(at('receipt.json'), '--key', at('key.pem'), '--body', at('body'), '--json');
  assert.deepEqual([good.code, good.stderr], [0, '']);
  assert.deepEqual((JSON.parse(good.text) as { algs: unknown }).algs, ['ed25519', 'ml-dsa-65']);
  assert.equal((await verify(at('receipt.json'), '--key', at('trust'))).code, 0);
  const refused = async (pattern: RegExp, ...args: string[]): Promise<void> => {
    const { code, stderr } = await verify(...args);
    assert.equal(code, 65, stderr);
    assert.match(stderr, pattern);
  };
  await refused(/\(key\)/, at('receipt.json'), '--key', at('other.pem'));
  await refused(/\(body\)/, at('receipt.json'), '--key', at('key.pem'), '--body', at('key.pem'));
  const text = await readFile(at('receipt.json'), 'utf8');
  await writeFile(at('changed.json'), text.replace('hooks.github', 'hooks.gitlab'));
  await refused(/\(receipt\)/, at('changed.json'), '--key', at('key.pem'));
  const ambiguous = [
    text.replace('"provider"', '"provider": "gitlab", "provider"'),
    text.replace('1800000000000', '1800000000000.0000001'),
    text.replace('1800000000000', '18e11'),
    text.replace('"hooks.github"', '"hooks.\\u0067ithub"'),
  ];
  for (const each of ambiguous) {
    assert.notEqual(each, text);
    await writeFile(at('ambiguous.json'), each);
    await refused(/is ambiguous/, at('ambiguous.json'), '--key', at('key.pem'));
  }
  const spaced = `\t${JSON.stringify(JSON.parse(text), null, 3).replaceAll('\n', '\r\n')}\n\n`;
  await writeFile(at('spaced.json'), spaced);
  assert.equal((await verify(at('spaced.json'), '--key', at('key.pem'))).code, 0);
  assert.doesNotMatch((await verify(at('spaced.json'), '--key', at('key.pem'))).text, /not checked/);
  await writeFile(at('logged.json'), JSON.stringify({ ...(JSON.parse(text) as object), log_index: 7, log_proof: {} }));
  const logged = await verify(at('logged.json'), '--key', at('key.pem'));
  assert.equal(logged.code, 0, logged.stderr);
  assert.match(logged.text, /^not checked: its place in the log of kms, which no signature/m);
  await writeFile(at('cut.json'), text.slice(0, -20));
  await refused(/not a receipt/, at('cut.json'), '--key', at('key.pem'));
  assert.equal((await verify(at('receipt.json'))).code, 64, 'a key must be given');
  assert.equal((await verify(at('none.json'), '--key', at('key.pem'))).code, 66);
});

test('each line of a trust file that covers the key is tried', async (t) => {
  const dir = tempDirFor(t);
  const at = (name: string): string => join(dir, name);
  const [keys, others] = [newKeys(), newKeys()];
  const line = (of: ReturnType<typeof newKeys>): string =>
    ['interop/receipts/', ...of.map(({ publicKey }) => derOf(publicKey))].join(' ');
  await writeFile(at('receipt.json'), JSON.stringify(signedReceipt(keys)));
  const verify = async (...trusts: string[]): Promise<number | null> => {
    const flags: string[] = [];
    for (const [n, text] of trusts.entries()) {
      await writeFile(at(`trust${n}`), text, { mode: 0o600 });
      flags.push('--key', at(`trust${n}`));
    }
    return (await command(['receipt', 'verify', at('receipt.json'), ...flags])).code;
  };
  assert.equal(await verify(`interop/\n${line(others)}\n${line(keys)}\n`), 0, 'the second line with keys');
  assert.equal(await verify(`${line(keys)}\n${line(others)}\n`), 0);
  assert.equal(await verify(`${line(others)}\n${line(newKeys())}\n`), 65);
  const halves = [keys, others].map((of) => of.map((each) => line([each])));
  assert.equal(
    await verify(halves.map(([ed]) => ed).join('\n'), halves.map(([, pq]) => pq).join('\n')),
    0,
    'two files',
  );
  assert.equal(await verify(halves[0]!.join('\n')), 65, 'a line with half of the key is not enough');
});

test('a receipt file has one reading, and no text of it prints a line of its own', async (t) => {
  const dir = tempDirFor(t);
  const at = (name: string): string => join(dir, name);
  const keys = newKeys();
  await writeFile(at('key.pem'), keys.map(({ pem }) => pem).join('\n'));
  await writeFile(at('trust'), `acme/ ${derOf(keys[0]!.publicKey)}\n`, { mode: 0o600 });
  const verify = async (bytes: string | Buffer, key: string): Promise<string> => {
    await writeFile(at('receipt.json'), bytes);
    const { code, text, stderr } = await command(['receipt', 'verify', at('receipt.json'), '--key', at(key)]);
    assert.deepEqual([code, text], [65, ''], stderr);
    return stderr;
  };
  const replaced = signedReceipt(keys, { delivery_id: 'x\ufffdy' });
  const [before, after] = JSON.stringify(replaced).split('\ufffd');
  const notUtf8 = Buffer.concat([Buffer.from(before!), Buffer.of(0xff), Buffer.from(after!)]);
  assert.match(await verify(notUtf8, 'key.pem'), /not a text in UTF-8/);
  const signed = signedReceipt(keys);
  const forged = 'x\nvalid: signed by the key';
  const extra = { kid: KID, alg: forged, signature_b64: 'AAAA' };
  for (const [value, key] of [
    [{ ...signed, sigs: [...signed.sigs, extra] }, 'key.pem'],
    [{ ...signed, [forged]: 1 }, 'key.pem'],
    [{ ...signed, kid: forged }, 'trust'],
  ] as const)
    assert.doesNotMatch(await verify(JSON.stringify(value), key), /^valid/m);
});

test('a body can be a pipe', async (t) => {
  const dir = tempDirFor(t);
  const at = (name: string): string => join(dir, name);
  const keys = newKeys();
  await writeFile(at('key.pem'), keys.map(({ pem }) => pem).join('\n'));
  await writeFile(at('receipt.json'), JSON.stringify(signedReceipt(keys)));
  execFileSync('mkfifo', [at('body')]);
  const verifying = command(['receipt', 'verify', at('receipt.json'), '--key', at('key.pem'), '--body', at('body')]);
  await writeFile(at('body'), BODY);
  const { code, text, stderr } = await verifying;
  assert.equal(code, 0, stderr);
  assert.match(text, /is the received body/);
});

test('an unsigned receipt exits with 75, a malformed id with 64', async (t) => {
  const fake = await FakeInterop.open(t);
  fake.routes.set(`GET /receipts/${ID}`, (_request, response) =>
    answer(response, 202, { receipt: signedReceipt(newKeys()).receipt }),
  );
  const { code, stderr } = await command(['receipt', 'get', ID, ...fake.flags]);
  assert.equal(code, 75, stderr);
  assert.match(stderr, /has not signed/);
  assert.equal((await command(['receipt', 'get', '../admin', ...fake.flags])).code, 64);
});

/** Without the white space between its tokens. */
function compact(text: string): string {
  let [result, isText] = ['', false];
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at]!;
    if (!isText && ' \t\r\n'.includes(char)) continue;
    result += char;
    if (isText && char === '\\') result += text[(at += 1)] ?? '';
    else if (char === '"') isText = !isText;
  }
  return result;
}

const endsOf = (pattern: RegExp, text: string): number[] =>
  [...text.matchAll(pattern)].map(({ 0: found, index }) => index + found.length);

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

test('a file with any edits is accepted if it differs in white space between tokens only; otherwise it exits with 65', async (t) => {
  const dir = await temporaryDir(t);
  const at = (name: string): string => join(dir, name);
  const keys = newKeys();
  await writeFile(at('key.pem'), keys.map(({ pem }) => pem).join('\n'));
  const signed = signedReceipt(keys);
  const text = JSON.stringify(signed);
  const codes = new Map<number, number>();
  const requireVerdict = async (file: Uint8Array | string): Promise<void> => {
    await writeFile(at('receipt.json'), file);
    const { code, stderr } = await command(['receipt', 'verify', at('receipt.json'), '--key', at('key.pem')]);
    const read = Buffer.from(file as Uint8Array).toString();
    const isSame = compact(read) === text && isJson(read);
    assert.equal(code, isSame ? 0 : 65, `${stderr} ${read}`);
    codes.set(code, (codes.get(code) ?? 0) + 1);
  };
  const spaces = fc.string({ unit: fc.constantFrom(' ', '\t', '\r', '\n'), minLength: 1, maxLength: 3 });
  const others = fc.constantFrom(
    '',
    '"',
    '\\',
    ',',
    '{',
    '}',
    '0',
    '.0',
    'e0',
    '-',
    '\u00a0',
    '\ufeff',
    'null',
    '"kid":"x",',
  );
  // A place outside of the signatures, which are most of the file.
  const place = fc.oneof(fc.nat(text.indexOf('"sigs"')), fc.nat(text.length));
  const edit = fc.record({ place, removed: fc.nat(1), by: fc.oneof(spaces, others) });
  // A duplicate key, and another spelling of a number, leave the value as it was.
  const respelled = fc.oneof(
    fc.record({
      place: fc.constantFrom(...endsOf(/\{/g, text)),
      removed: fc.constant(0),
      by: fc.constant('"kid":"x",'),
    }),
    fc.record({
      place: fc.constantFrom(...endsOf(/:\d+/g, text)),
      removed: fc.constant(0),
      by: fc.constantFrom('.0', 'e0'),
    }),
  );
  const edited = fc
    .array(fc.oneof({ weight: 4, arbitrary: edit }, respelled), { minLength: 1, maxLength: 3 })
    .map((edits) =>
      edits.reduce((file, { place: from, removed, by }) => file.slice(0, from) + by + file.slice(from + removed), text),
    );
  await fc.assert(
    fc.asyncProperty(fc.oneof({ weight: 9, arbitrary: edited }, fc.uint8Array({ maxLength: 100 })), requireVerdict),
    { ...fuzzRuns(150), examples: [[text], [`\n${text.replaceAll('":', '" : ')} `]] },
  );
  await fc.assert(
    fc.asyncProperty(fc.nat(text.length - 1), fc.integer({ min: 1, max: 255 }), async (changed, mask) => {
      const bytes = Buffer.from(text);
      bytes[changed]! ^= mask;
      await requireVerdict(bytes);
    }),
    fuzzRuns(100),
  );
  assert.ok(codes.has(0) && codes.has(65), JSON.stringify([...codes]));
});
