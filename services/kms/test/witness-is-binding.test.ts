/** A witness that does not cosign is visible at once, and in mode `strict` it stops signing after its limit. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { installSched, NEVER, realSched } from '@ron/kernel';
import { Cosigner } from '@ron/tlog';
import { startWitness, type WitnessServer } from '@ron/tlog/testing';
import { eventually, tempDir } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { B3, startService, type TestKms } from './support.ts';

const MINUTE = 60_000;

const sign = (kms: TestKms, kid: string): Promise<Reply> =>
  kms.post('/sign', { kid, payload_b3: B3, wait: 'checkpoint' });

/** A directory with a key, and a witness that knows its log. */
async function prepared(dir: string): Promise<{ kid: string; vkeys: string[] }> {
  await using kms = await startService({ dir });
  const kid = await kms.create('ed25519');
  await sign(kms, kid);
  await kms.kms.drain();
  return { kid, vkeys: (await readFile(join(dir, 'audit/vkeys'), 'utf8')).trim().split('\n') };
}

const flagsFor = ({ url, vkey }: Pick<WitnessServer, 'url' | 'vkey'>, mode: string, max_age = '1s'): string[] => [
  `--audit.witness_url=${url}`,
  `--audit.witness_key=${vkey}`,
  `--audit.mode=${mode}`,
  `--audit.witness_max_age=${max_age}`,
  '--egress.networks=127.0.0.0/8',
];

const isOpen = async (kms: TestKms, gate: string): Promise<boolean> =>
  ((await kms.send('GET', '/readyz')).json.gates as { gate: string; open: boolean }[]).find(
    (each) => each.gate === gate,
  )!.open;

for (const mode of ['strict', 'continue'])
  test(`mode ${mode}: a witness that is away is reported at once and ${mode === 'strict' ? 'stops' : 'does not stop'} signing`, async () => {
    await using temp = await tempDir();
    const dir = join(temp.path, 'data');
    const { kid, vkeys } = await prepared(dir);
    await using witness = await startWitness(vkeys[0]!.split('+')[0]!, vkeys);
    await using kms = await startService({ dir, flags: flagsFor(witness, mode) });
    assert.equal((await sign(kms, kid)).status, 200);
    await eventually('the checkpoint is cosigned', () => isOpen(kms, 'witness'));
    await eventually('no checkpoint waits', async () => (await kms.metric('kms_witness_age_seconds')) === 0);

    witness.override = { status: 500, text: '' };
    assert.equal((await sign(kms, kid)).status, 200, 'within the limit');
    await eventually('readiness reports it', async () => !(await isOpen(kms, 'witness')));
    assert.equal((await kms.send('GET', '/readyz')).status, 200);
    await eventually('the age exceeds the limit', async () => (await kms.metric('kms_witness_age_seconds')) > 1);
    const late = await sign(kms, kid);
    if (mode === 'strict') {
      assertRefusal(late, 503, 'degraded_audit');
      assert.match(late.json.detail, /the witness has not cosigned for \d+ s: .*status 500/);
      assert.equal((await kms.send('GET', '/readyz?lane=sign')).status, 503);
      const verified = await kms.post('/verify', { kid, payload_b3: B3, sigs: [] });
      assert.notEqual(verified.status, 503, 'verification continues');
    } else assert.equal(late.status, 200);

    witness.override = undefined;
    await eventually('signing reopens', async () => (await sign(kms, kid)).status === 200);
    await eventually('the witness has it', async () => (await kms.metric('kms_witness_age_seconds')) === 0);
  });

for (const cosigned of [true, false])
  test(`restarts do not begin the limit anew, ${cosigned ? 'after a cosignature' : 'without any cosignature'}`, async () => {
    await using temp = await tempDir();
    const dir = join(temp.path, 'data');
    const { kid, vkeys } = await prepared(dir);
    await using witness = await startWitness(vkeys[0]!.split('+')[0]!, vkeys);
    const flags = flagsFor(witness, 'strict', '1h');
    /** Runs kms with a clock that is ahead by `offset_ms`; returns the status of a signature. */
    const signAt = async (offset_ms: number): Promise<number> => {
      const previous = installSched({ ...realSched, wall_ms: () => Date.now() + offset_ms });
      try {
        await using kms = await startService({ dir, flags });
        const { status } = await sign(kms, kid);
        await kms.kms.drain();
        return status;
      } finally {
        installSched(previous);
      }
    };
    if (cosigned) assert.equal(await signAt(0), 200);
    witness.override = { status: 500, text: '' };
    assert.equal(await signAt(20 * MINUTE), 200);
    assert.equal(await signAt(40 * MINUTE), 200);
    assert.equal(await signAt(61 * MINUTE), 503, 'no checkpoint was cosigned for an hour');
    if (!cosigned) return;
    assert.equal(await signAt(-60 * MINUTE), 200, 'a clock that was set back');
    assert.equal(await signAt(2 * MINUTE), 503, 'the limit counts on from there');
    witness.override = undefined;
    assert.equal(await signAt(61 * MINUTE), 200);
    witness.override = { status: 500, text: '' };
    assert.equal(await signAt(62 * MINUTE), 200);
  });

test('an idle log is not late, however long ago it was cosigned', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const { kid, vkeys } = await prepared(dir);
  await using witness = await startWitness(vkeys[0]!.split('+')[0]!, vkeys);
  await using kms = await startService({ dir, flags: flagsFor(witness, 'strict') });
  await eventually('the checkpoint is cosigned', async () => (await kms.metric('kms_witness_age_seconds')) === 0);
  await new Promise((resolve) => setTimeout(resolve, 1500));
  assert.equal((await sign(kms, kid)).status, 200);
});

test('a witness at a Unix socket cosigns', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const { kid, vkeys } = await prepared(dir);
  const socket = join(temp.path, 's');
  await using cosigner = await Cosigner.open({ dir: join(temp.path, 'witness'), logs: vkeys });
  const server = createServer((request, response) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece as Buffer);
      const { status, text } = await cosigner.add(Buffer.concat(pieces).toString('utf8'), NEVER);
      response.writeHead(status).end(text);
    })();
  });
  await new Promise<void>((resolve) => void server.listen(socket, resolve));
  {
    await using kms = await startService({
      dir,
      flags: flagsFor({ url: `unix:${socket}`, vkey: cosigner.vkey }, 'strict'),
    });
    assert.equal((await sign(kms, kid)).status, 200);
    await eventually('the published checkpoint carries the cosignature', async () =>
      (await kms.get('/audit/checkpoint')).text.includes(cosigner.vkey.split('+')[0]!),
    );
  }
  server.close();
});
