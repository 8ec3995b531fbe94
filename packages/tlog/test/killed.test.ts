/** A writer process is killed at random moments: acknowledged entries survive, and the log is intact. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { createPrivateKey, generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { dirSource, noteSigner, TransparencyLog, verifyLog, type NoteSigner } from '@ron/tlog';

const ORIGIN = 'example.com/audit';
const { signal } = new AbortController();
const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const spki = publicKey.export({ format: 'der', type: 'spki' });

const signerWith = (key: KeyObject): NoteSigner =>
  noteSigner({ name: ORIGIN, type: 0x01, spki, sign: async (message) => sign(null, message, key) });

const SCRIPT = `
  import { createPrivateKey, sign } from 'node:crypto';
  import { noteSigner, TransparencyLog } from ${JSON.stringify(import.meta.resolve('@ron/tlog'))};
  const [dir, secret, spki] = process.argv.slice(1);
  const key = createPrivateKey({ key: Buffer.from(secret, 'base64'), format: 'der', type: 'pkcs8' });
  const signer = noteSigner({ name: '${ORIGIN}', type: 1, spki: Buffer.from(spki, 'base64'), sign: async (m) => sign(null, m, key) });
  const { signal } = new AbortController();
  const log = await TransparencyLog.open({ dir, origin: '${ORIGIN}', signers: [signer], signal });
  for (let round = 0; ; round++) {
    const count = 1 + (round * 7) % 90;
    const entries = Array.from({ length: count }, (_, index) => Buffer.from('entry ' + (log.size + index)));
    await log.append(entries, signal);
    if (round % 3 === 0) await log.writeCheckpoint(signal);
    process.stdout.write(log.size + ' ' + (log.checkpoint?.size ?? 0) + '\\n');
  }`;

/** Runs a writer until it has printed `lines` lines and kills it; returns the last line. */
async function killAfter(dir: string, lines: number): Promise<{ size: number; signed: number }> {
  const secret = privateKey.export({ format: 'der', type: 'pkcs8' }).toString('base64');
  const args = ['--input-type=module', '-e', SCRIPT, '--', dir, secret, spki.toString('base64')];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise<void>((resolve) => void child.once('exit', () => resolve()));
  let [last, seen] = ['0 0', 0];
  for await (const line of createInterface({ input: child.stdout })) {
    last = line;
    seen += 1;
    if (seen === lines) child.kill('SIGKILL');
  }
  await ended;
  const [size, signed] = last.split(' ').map(Number);
  return { size: size!, signed: signed! };
}

test('repeated kill -9 loses no acknowledged entry', async (t) => {
  const dir = tempDirFor(t);
  const signer = signerWith(createPrivateKey(privateKey.export({ format: 'pem', type: 'pkcs8' })));
  for (const lines of [1, 9, 20]) {
    const acknowledged = await killAfter(dir, lines);
    const log = await TransparencyLog.open({ dir, origin: ORIGIN, signers: [signer], signal });
    assert.ok(log.size >= acknowledged.size, `${log.size} of ${acknowledged.size} survived`);
    assert.ok(log.checkpoint!.size >= acknowledged.signed);
    await log.writeCheckpoint(signal);
    for (let index = 0; index < log.size; index += 97) assert.equal(String(await log.entry(index)), `entry ${index}`);
    await log.close();
    await using source = await dirSource(dir);
    const audit = await verifyLog(source, [signer.vkey], { signal });
    assert.ok(audit.ok, JSON.stringify(audit));
  }
});

test('a growing log can be audited', async (t) => {
  const dir = tempDirFor(t);
  await using log = await TransparencyLog.open({ dir, origin: ORIGIN, signers: [signerWith(privateKey)], signal });
  const grow = async (): Promise<void> => {
    for (let round = 0; round < 60; round++) {
      await log.append([Buffer.from(`entry ${log.size}`), Buffer.alloc(round)], signal);
      await log.writeCheckpoint(signal);
    }
  };
  // Opened before most of the files exist.
  await using source = await dirSource(dir);
  await grow();
  const growing = grow();
  for (let audits = 0; audits < 5; audits++) {
    const audit = await verifyLog(source, [signerWith(privateKey).vkey], { signal });
    assert.ok(audit.ok, JSON.stringify(audit));
  }
  await growing;
});
