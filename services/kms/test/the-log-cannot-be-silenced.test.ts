/** Floods on a small disk: signatures keep their entries, and no tenant uses the room of the others. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { NEVER } from '@ron/kernel';
import { dirSource, verifyLog } from '@ron/tlog';
import { eventually, mountTmpfs, NO_MOUNT } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { B3, startService, type TestKms } from './support.ts';

const MIB = 1024 * 1024;
const MAY_MOUNT = ((): boolean => {
  const dir = mkdtempSync(join(tmpdir(), 'ron-test-'));
  const mount = mountTmpfs(dir, '1m');
  mount?.[Symbol.dispose]();
  rmSync(dir, { recursive: true });
  return mount !== undefined;
})();

/** The directory of a tmpfs of 32 MiB, until the test ends. */
function smallDisk(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'ron-test-'));
  const mount = mountTmpfs(dir, '32m')!;
  t.after(() => {
    mount[Symbol.dispose]();
    rmSync(dir, { recursive: true });
  });
  return dir;
}

/** A kms on a tmpfs of 32 MiB; `leave` fills it up to so many free bytes. */
async function onSmallDisk(
  t: TestContext,
  flags: readonly string[],
): Promise<{ kms: TestKms; dir: string; leave: (bytes: number) => void; free: () => number }> {
  const mount = smallDisk(t);
  const dir = join(mount, 'data');
  mkdirSync(dir);
  const kms = await startService({ dir, flags });
  const free = (): number => {
    const { bavail, bsize } = statfsSync(mount);
    return bavail * bsize;
  };
  const ballast = join(mount, 'ballast');
  const leave = (bytes: number): void => {
    rmSync(ballast, { force: true });
    writeFileSync(ballast, Buffer.alloc(Math.max(0, free() - bytes)));
  };
  return { kms, dir, leave, free };
}

async function verified(dir: string, vkeys: readonly string[]): Promise<Record<string, unknown>[]> {
  await using source = await dirSource(join(dir, 'audit'));
  const audit = await verifyLog(source, vkeys, { signal: NEVER });
  assert.ok(audit.ok, JSON.stringify(audit));
  const entries: Record<string, unknown>[] = [];
  for (let bundle = 0; bundle * 256 < audit.checkpoint.size; bundle++) {
    const bytes = Buffer.from((await source.tile(tileOf(bundle, audit.checkpoint.size), NEVER))!);
    for (let at = 0; at < bytes.length;) {
      const end = at + 2 + bytes.readUInt16BE(at);
      entries.push(JSON.parse(bytes.toString('utf8', at + 2, end)) as Record<string, unknown>);
      at = end;
    }
  }
  return entries;
}

const tileOf = (bundle: number, size: number): string => {
  const width = Math.min(256, size - bundle * 256);
  return `tile/entries/${String(bundle).padStart(3, '0')}${width === 256 ? '' : `.p/${width}`}`;
};

/** Counts the verifications that the log accounts for. */
function verifications(entries: readonly Record<string, unknown>[]): number {
  let count = 0;
  for (const { op, results } of entries) {
    if (op === 'verify') count += 1;
    if (op !== 'summary') continue;
    for (const [name, number] of Object.entries(results as Record<string, number>))
      if (name.startsWith('verify')) count += number;
  }
  return count;
}

suite('on a small disk', { skip: MAY_MOUNT ? false : NO_MOUNT }, () => {
  test('a tenant that only verifies floods a nearly full disk: every signature of another tenant has an entry', async (t) => {
    // Without the rate every verification has an entry of its own and fills the disk as fast as possible.
    const { kms, dir, leave, free } = await onSmallDisk(t, ['--audit.verify_rate=1000000']);
    await using _ = kms;
    const [mine, theirs] = [await kms.create('ed25519', { tenant: 'flood' }), await kms.create('ed25519')];
    const { sigs } = (await kms.post('/sign', { kid: mine, payload_b3: B3 })).json;
    leave(4 * MIB);
    const flooder = await kms.allow({ scopes: ['kms:verify'], caveats: ['tenant = flood'] });
    const over = new AbortController();
    let [verifies, floods] = [0, 0];
    const flood = async (): Promise<void> => {
      while (!over.signal.aborted) {
        const reply = await kms.post('/verify', { kid: mine, payload_b3: B3, sigs }, flooder);
        floods += 1;
        if (reply.status === 200) verifies += 1;
        else assertRefusal(reply, 503, 'degraded_audit');
      }
    };
    const flooding = Array.from({ length: 16 }, flood);
    const signed: number[] = [];
    const signUntil = async (isDone: () => boolean): Promise<void> => {
      while (!isDone()) {
        const reply = await kms.post('/sign', { kid: theirs, payload_b3: B3 });
        assert.equal(reply.status, 200, reply.text);
        assert.equal(typeof reply.json.log_index, 'number', 'no signature without an entry');
        signed.push(reply.json.log_index as number);
      }
    };
    const before = free();
    await signUntil(() => floods > 2000 && signed.length > 200);
    // Only the reserve is left: another part of the node takes the rest.
    leave(0.9 * MIB);
    await eventually('the gate reports the reserve', async () =>
      /only the reserve is left/.test((await kms.send('GET', '/readyz')).text),
    );
    const from = signed.length;
    const floods_before = floods;
    await signUntil(() => signed.length > from + 100 && floods > floods_before + 2500);
    assertRefusal(await kms.post('/datakey', { kid: await kms.create('x-wing') }), 503, 'degraded_audit');
    over.abort();
    await Promise.all(flooding);
    assert.ok(before - free() < 4 * MIB);
    assert.equal(await kms.metric('audit_dropped_total'), 0);
    const { vkeys } = kms.kms.vault;
    await kms.kms.drain();
    const entries = await verified(dir, vkeys);
    const indexes = new Set(signed);
    assert.equal(indexes.size, signed.length);
    for (const index of signed) assert.equal(entries[index]?.['op'], 'sign');
    assert.equal(verifications(entries), verifies, 'every verification is accounted for');
  });

  test('a tenant that floods signatures is refused at its share, and another tenant still signs', async (t) => {
    const { kms, leave } = await onSmallDisk(t, []);
    await using _ = kms;
    const [mine, theirs] = [await kms.create('ed25519', { tenant: 'flood' }), await kms.create('ed25519')];
    leave(2.5 * MIB);
    const items = Array.from({ length: 128 }, () => ({ kid: mine, payload_b3: B3 }));
    let refused: Reply | undefined;
    for (let batches = 0; batches < 200 && refused === undefined; batches++) {
      const reply = await kms.post('/sign', { items });
      if (reply.status !== 200) refused = reply;
    }
    assert.ok(refused !== undefined, 'the flood ends');
    assertRefusal(refused, 503, 'degraded_audit');
    assert.match(refused.json.detail, /share of flood/);
    assert.ok(Number(refused.headers['retry-after']) > 0);
    for (let each = 0; each < 50; each++) {
      const reply = await kms.post('/sign', { kid: theirs, payload_b3: B3 });
      assert.deepEqual([reply.status, typeof reply.json.log_index], [200, 'number'], reply.text);
    }
    assert.ok((await kms.metric('kms_audit_no_room_total')) >= 1);
  });

  test('tenants that store answers or keys are refused at their share, and another tenant still signs', async (t) => {
    const { kms, leave, free } = await onSmallDisk(t, []);
    await using _ = kms;
    const theirs = await kms.create('ed25519');
    const floods = await Promise.all(
      ['one', 'two'].map(async (tenant) => {
        const kid_set: string[] = [];
        while (kid_set.length < 8) kid_set.push(await kms.create('ml-dsa-87', { tenant }));
        const flooder = await kms.allow({ scopes: ['kms:sign'], caveats: [`tenant = ${tenant}`] });
        return (op_id: string) => kms.post('/sign', { kid_set, payload_b3: B3, op_id }, flooder);
      }),
    );
    const keys = () => kms.post('/keys', { tenant: 'three', purpose: 'docs', alg: 'ml-dsa-87' });
    leave(5 * MIB);
    for (const flood of [...floods, keys]) {
      let refused: Reply | undefined;
      for (let at = 0; at < 400 && refused === undefined; at += 4) {
        // About 53 KB each. Concurrent requests must not exceed the share either.
        const replies = await Promise.all([0, 1, 2, 3].map((each) => flood(`op-${at + each}`)));
        refused = replies.find(({ status }) => status >= 400);
      }
      assert.ok(refused !== undefined, 'the flood ends');
      assertRefusal(refused, 503, 'degraded_audit');
      assert.match(
        refused.json.detail,
        /the share of (one|two|three) in the audit log is used|only the reserve is left/,
      );
      if (flood !== keys) assert.ok(free() > 1.9 * MIB, `${free()} bytes are free: the reserve is used`);
    }
    for (let each = 0; each < 20; each++) {
      const reply = await kms.post('/sign', { kid: theirs, payload_b3: B3 });
      assert.deepEqual([reply.status, typeof reply.json.log_index], [200, 'number'], reply.text);
    }
    assert.equal((await kms.post(`/keys/${encodeURIComponent(theirs)}/rotate`, {})).status, 200);
    assert.equal(await kms.metric('audit_dropped_total'), 0);
  });

  test('a share survives a restart', async (t) => {
    const mount = smallDisk(t);
    const dir = join(mount, 'data');
    let kid: string;
    const items = (): { kid: string; payload_b3: string }[] =>
      Array.from({ length: 128 }, () => ({ kid, payload_b3: B3 }));
    {
      await using kms = await startService({ dir });
      kid = await kms.create('ed25519', { tenant: 'flood' });
      const { bavail, bsize } = statfsSync(mount);
      writeFileSync(join(mount, 'ballast'), Buffer.alloc(bavail * bsize - 2.5 * MIB));
      while ((await kms.post('/sign', { items: items() })).status === 200);
      await kms.kms.drain();
    }
    await using kms = await startService({ dir });
    assertRefusal(await kms.post('/sign', { items: items() }), 503, 'degraded_audit');
  });
});

test('refused requests of one capability do not fill the log, and cost the named tenant nothing', async () => {
  await using kms = await startService({ flags: ['--audit.verify_rate=5'] });
  const kid = await kms.create('ed25519');
  const zoo = await kms.allow({ caveats: ['tenant = zoo'] });
  for (let each = 0; each < 300; each++)
    assertRefusal(await kms.post('/sign', { kid, payload_b3: B3 }, zoo), 403, 'forbidden');
  const log = kms.kms.vault.log!;
  const entry = async (index: number): Promise<Record<string, unknown>> =>
    JSON.parse(Buffer.from(await log.entry(index)).toString()) as Record<string, unknown>;
  const counted = async (): Promise<number> => {
    let count = 0;
    for (let index = 0; index < log.size; index++) {
      const { op, results, result, tenant, subject } = await entry(index);
      if (tenant !== 'acme') continue;
      assert.equal(typeof subject, 'string');
      if (op === 'summary') count += (results as Record<string, number>)['sign forbidden'] ?? 0;
      else if (result === 'forbidden') count += 1;
    }
    return count;
  };
  await eventually('every refusal is accounted for', async () => (await counted()) === 300);
  assert.ok(log.size < 100, `${log.size} entries`);
});
