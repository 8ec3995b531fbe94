import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { TransparencyLog } from '../log/log.ts';
import { parseVkey, verifyNote } from '../note/note-key.ts';
import { parseNote } from '../note/note.ts';
import { memorySigner, startWitness, treeHash } from '../testing/index.ts';
import { Witness } from './witness.ts';

/** The test witnesses speak plain HTTP on loopback. */
const egress = { networks: ['127.0.0.0/8'] };
const ORIGIN = 'example.com/audit';
const { signal } = new AbortController();
const signer = memorySigner(ORIGIN);

const entriesOf = (from: number, to: number): Buffer[] =>
  Array.from({ length: to - from }, (_, index) => Buffer.from(`entry ${from + index}`));

async function logOf(t: TestContext, size: number): Promise<TransparencyLog> {
  const dir = mkdtempSync(join(tmpdir(), 'ron-witness-'));
  const log = await TransparencyLog.open({ dir, origin: ORIGIN, signers: [signer], signal });
  t.after(async () => {
    await log.close();
    rmSync(dir, { recursive: true });
  });
  await log.append(entriesOf(0, size), signal);
  await log.writeCheckpoint(signal);
  return log;
}

test('a witness signs each checkpoint that extends the previous one, and its signature is published', async (t) => {
  await using server = await startWitness(ORIGIN, [signer.vkey]);
  const log = await logOf(t, 10);
  const witness = new Witness({ url: server.url, vkeys: [server.vkey], egress });
  const cosign = () => witness.cosign(log.checkpoint!, (from, to) => log.consistency(from, to), signal);
  for (const size of [10, 300, 301, 301]) {
    if (size > log.size) await log.append(entriesOf(log.size, size), signal);
    const checkpoint = await log.writeCheckpoint(signal);
    const { lines, signed_by } = await cosign();
    assert.deepEqual(signed_by, [server.vkey]);
    assert.equal(await log.addCosignatures(checkpoint.size, lines, signal), true);
    const keys = [parseVkey(signer.vkey), parseVkey(server.vkey)];
    assert.deepEqual(verifyNote(parseNote(log.checkpoint!.text), keys), keys);
    assert.equal(await log.addCosignatures(checkpoint.size - 1, lines, signal), false);
  }
  assert.deepEqual(server.answers, [200, 200, 200, 200]);
  assert.equal(witness.size, 301);
});

test('a witness with a later size reports it, and the request is repeated from there', async (t) => {
  await using server = await startWitness(ORIGIN, [signer.vkey]);
  const log = await logOf(t, 20);
  await server.setLatest({ origin: ORIGIN, size: 7, root: treeHash(entriesOf(0, 7)) });
  const witness = new Witness({ url: server.url, vkeys: [server.vkey], egress });
  await witness.cosign(log.checkpoint!, (from, to) => log.consistency(from, to), signal);
  assert.deepEqual(server.answers, [409, 200]);
  assert.equal((await server.latest())?.size, 20);
});

test('a witness detects a log that was rolled back or rewritten', async (t) => {
  await using server = await startWitness(ORIGIN, [signer.vkey]);
  const log = await logOf(t, 20);
  const seen = [
    [{ origin: ORIGIN, size: 21, root: treeHash(entriesOf(0, 21)) }, /seen 21 entries, but the log has 20/],
    [{ origin: ORIGIN, size: 20, root: treeHash(entriesOf(1, 21)) }, /different entries among the first 20/],
    [{ origin: ORIGIN, size: 7, root: treeHash(entriesOf(1, 8)) }, /does not extend/],
  ] as const;
  for (const [latest, message] of seen) {
    await server.setLatest(latest);
    const witness = new Witness({ url: server.url, vkeys: [server.vkey], egress });
    const asked = witness.cosign(log.checkpoint!, (from, to) => log.consistency(from, to), signal);
    await assert.rejects(asked, { code: 'audit_integrity', message });
  }
});

test('other responses of a witness say nothing about the log and have distinct errors', async (t) => {
  await using server = await startWitness(ORIGIN, [signer.vkey]);
  const log = await logOf(t, 5);
  const consistency = (from: number, to: number) => log.consistency(from, to);
  const ask = (vkeys = [server.vkey]) =>
    new Witness({ url: server.url, vkeys, egress }).cosign(log.checkpoint!, consistency, signal);
  const answers = [
    [404, '', 'not_found'],
    [403, '', 'forbidden'],
    [500, '', 'unreachable'],
    [409, 'many\n', 'unreachable'],
    [409, '', 'unreachable'],
    [409, '7', 'unreachable'],
    [409, '-1\n', 'unreachable'],
    [409, '007\n', 'unreachable'],
    [409, '1e3\n', 'unreachable'],
    [409, '99999999999999999999\n', 'unreachable'],
    [409, '0\n', 'unreachable'],
    [409, '3\n', 'unreachable'],
    [409, `${'9'.repeat(100_000)}\n`, 'payload_too_large'],
    [200, '\u2014 x y\n'.repeat(20_000), 'payload_too_large'],
    [200, '', 'validation'],
    [200, 'no signature\n', 'validation'],
  ] as const;
  for (const [status, text, code] of answers) {
    server.override = { status, text };
    await assert.rejects(ask(), { code }, `${status} ${text}`);
  }
  server.override = undefined;
  // Signed, but with a key that is not trusted.
  const stranger = await startWitness(ORIGIN, [signer.vkey]);
  await stranger[Symbol.asyncDispose]();
  await assert.rejects(ask([stranger.vkey]), { code: 'validation' });
  const unknown = new Witness({ url: stranger.url, vkeys: [stranger.vkey], egress });
  await assert.rejects(unknown.cosign(log.checkpoint!, consistency, signal), { code: 'unreachable' });
});

for (const [what, listener] of [
  ['does not respond', () => undefined],
  ['never completes its response', (_, response) => void response.writeHead(200).write('x')],
  ['never completes its refusal', (_, response) => void response.writeHead(409).write('1')],
] satisfies [string, RequestListener][])
  test(`a witness that ${what} fails at its deadline`, async (t) => {
    const server = createServer(listener);
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    const log = await logOf(t, 5);
    await using known = await startWitness(ORIGIN, [signer.vkey]);
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const witness = new Witness({ url, vkeys: [known.vkey], deadline_ms: 50, egress });
    await assert.rejects(
      witness.cosign(log.checkpoint!, (from, to) => log.consistency(from, to), signal),
      { code: 'timeout' },
    );
  });
