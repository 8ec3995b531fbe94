import assert from 'node:assert/strict';
import { createPrivateKey, generateKeyPairSync, sign } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { decodeCheckpoint, encodeCheckpoint } from './checkpoint.ts';
import { formatVkey, KeyType, parseVkey, signCheckpoint, subtreeMessage, verifyNote } from './note-key.ts';
import { formatNote, parseNote } from './note.ts';
import { memorySigner } from '../testing/index.ts';

const { signal } = new AbortController();
const ORIGIN = 'example.com/audit';
const checkpoint = { origin: ORIGIN, size: 20_852_163, root: new Uint8Array(32).fill(7) };

/** The example from the documentation of Go's sumdb/note. */
const GO_VKEY = 'PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW';
const GO_SEED = 'gQoUAtUUbI2E8kQzMPVAgOv5juF9nHT2JS/F1ccoMXM=';
/** The note of the test vectors of golang.org/x/mod/sumdb/note. */
const GO_TEXT = [
  "If you think cryptography is the answer to your problem,\nthen you don't know what",
  'your problem is.\n',
].join(' ');
const GO_NOTE = `${GO_TEXT}
— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=
`;

test("a note signed by Go verifies here, and our signature of it is identical to Go's", () => {
  const key = parseVkey(GO_VKEY);
  const note = parseNote(GO_NOTE);
  assert.equal(note.text, GO_TEXT);
  assert.deepEqual(verifyNote(note, [key]), [key]);
  const der = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), Buffer.from(GO_SEED, 'base64')]);
  const secret = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  const signature = sign(null, Buffer.from(GO_TEXT), secret);
  assert.equal(formatNote({ text: GO_TEXT, signatures: [{ name: key.name, key_id: key.key_id, signature }] }), GO_NOTE);
  const changed = { ...note, text: note.text.replace('answer', 'Answer') };
  assert.throws(() => verifyNote(changed, [key]), { code: 'audit_integrity' });
});

test('a checkpoint has exactly three lines', () => {
  const text = encodeCheckpoint(checkpoint);
  assert.equal(text, 'example.com/audit\n20852163\nBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n');
  assert.deepEqual({ ...decodeCheckpoint(text), root: checkpoint.root }, checkpoint);
  const root = 'BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=';
  for (const bad of [
    '',
    'a\n1\n',
    `\n1\n${root}\n`,
    `a\n01\n${root}\n`,
    `a\n-1\n${root}\n`,
    `a\n9007199254740993\n${root}\n`,
    `a\n1\n${root.replace('=', '')}\n`,
    `a\n1\n${root}`,
    `a\n1\n${root}\nextension\n`,
    `a\n1\nBwcH\n`,
    `${'a'.repeat(256)}\n1\n${root}\n`,
  ]) {
    assert.throws(() => decodeCheckpoint(bad), { code: 'validation' }, JSON.stringify(bad));
  }
});

test('both key types sign a checkpoint, and any modification is detected', async () => {
  const signers = [memorySigner(ORIGIN), memorySigner(ORIGIN, KeyType.mlDsa44)];
  const keys = signers.map((signer) => parseVkey(signer.vkey));
  const note = parseNote(await signCheckpoint(checkpoint, signers, signal));
  assert.deepEqual(verifyNote(note, keys), keys);
  for (const change of [{ size: 1 }, { origin: 'example.com/other' }, { root: new Uint8Array(32) }]) {
    const text = encodeCheckpoint({ ...checkpoint, ...change });
    for (const key of keys) assert.throws(() => verifyNote({ ...note, text }, [key]), { code: 'audit_integrity' });
  }
  for (const [index, line] of note.signatures.entries()) {
    const signature = Uint8Array.from(line.signature);
    signature[3]! ^= 1;
    const signatures = note.signatures.with(index, { ...line, signature });
    assert.throws(() => verifyNote({ ...note, signatures }, keys), { code: 'audit_integrity' });
  }
});

test('signatures of unknown keys are ignored, and a note without a known key is refused', async () => {
  const [mine, other] = [memorySigner(ORIGIN), memorySigner(ORIGIN)];
  const note = parseNote(await signCheckpoint(checkpoint, [other, mine], signal));
  assert.equal(verifyNote(note, [parseVkey(mine.vkey)]).length, 1);
  assert.throws(() => verifyNote(note, [parseVkey(memorySigner(ORIGIN).vkey)]), { code: 'audit_integrity' });
  assert.throws(() => verifyNote(note, []), { code: 'audit_integrity' });
});

test('the ML-DSA message has the documented format, byte for byte', () => {
  const root = Buffer.alloc(32, 7);
  const message = subtreeMessage('w.example', 1, { origin: 'log.example', size: 258, root });
  const expected =
    `${Buffer.from('subtree/v1').toString('hex')}0a00` +
    `09${Buffer.from('w.example').toString('hex')}0000000000000001` +
    `0b${Buffer.from('log.example').toString('hex')}00000000000000000000000000000102${root.toString('hex')}`;
  assert.equal(message.toString('hex'), expected);
});

test("a witness's cosignature covers the time and the text", () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const bare = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  const key = parseVkey(formatVkey('witness.example/w1', KeyType.ed25519Cosignature, bare));
  const text = encodeCheckpoint(checkpoint);
  const time = Buffer.from('000000006418 50cb'.replace(' ', ''), 'hex');
  const bytes = sign(null, Buffer.from(`cosignature/v1\ntime 1679315147\n${text}`), privateKey);
  const line = { name: key.name, key_id: key.key_id, signature: Buffer.concat([time, bytes]) };
  assert.deepEqual(verifyNote({ text, signatures: [line] }, [key]), [key]);
  const later = { ...line, signature: Buffer.concat([Buffer.from('00000000641850cc', 'hex'), bytes]) };
  assert.throws(() => verifyNote({ text, signatures: [later] }, [key]), { code: 'audit_integrity' });
  const short = { ...line, signature: Buffer.alloc(3) };
  assert.throws(() => verifyNote({ text, signatures: [short] }, [key]), { code: 'audit_integrity' });
});

test('a malformed key is refused', () => {
  assert.equal(parseVkey('EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop').name, 'EnochRoot');
  for (let at = 0; at < GO_VKEY.length; at++) {
    assert.throws(() => parseVkey(GO_VKEY.slice(0, at)), { code: 'validation' });
    const changed = `${GO_VKEY.slice(0, at)}${GO_VKEY[at] === 'x' ? 'y' : 'x'}${GO_VKEY.slice(at + 1)}`;
    assert.throws(() => parseVkey(changed), { code: 'validation' }, changed);
  }
});

test('a signature is longer than its key id', () => {
  for (const short of ['', 'AAAA', 'AAAAAA==', 'AAAAAAAA==', 'AAAAAAB=']) {
    assert.throws(() => parseNote(`text\n\n— a ${short}\n`), { code: 'validation' }, short);
  }
  assert.equal(parseNote('text\n\n— a AAAAAAA=\n').signatures[0]?.signature.length, 1);
});

test('arbitrary bytes are refused or round-trip through parsing and formatting', () => {
  const parse = (bytes: Uint8Array | string): void => {
    try {
      const text = typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString();
      assert.equal(formatNote(parseNote(bytes)), text);
    } catch (error) {
      assert.equal((error as { code?: string }).code, 'validation', String(error));
    }
  };
  fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), parse));
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => parse(`${text}\n\n— a AAAAAAA=\n`)));
  const pieces = fc.constantFrom('\n', '— ', 'name', ' ', 'AAAAAAA=', 'AAAA', '\t', 'text', '\u2003', '+', '\ud800');
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 14 }), (parts) => parse(parts.join(''))),
    { numRuns: 2000 },
  );
});
