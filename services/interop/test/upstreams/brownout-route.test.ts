/** `/admin/brownout`, behind a real listener. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createIngress } from '@ron/ingress';
import { Deadline, sched } from '@ron/kernel';
import type { BrownoutDto } from '@ron/proto';
import { Metrics } from '@ron/telemetry';
import type { After } from '@ron/testkit';
import { assertRefusal, send, type Reply } from '@ron/testkit/service';
import type { AuditEvent } from '../../src/audit/audit-event.ts';
import { REASONS } from '../../src/reasons.ts';
import { brownoutRoutes } from '../../src/routes/brownout.ts';
import { ACCESS } from '../access.ts';
import { calling, type Called } from './support.ts';

const HOUR_MS = 3_600_000;

const ADMIN = { authorization: 'Bearer interop:admin' };

async function listening(t: After) {
  const called = await calling(t);
  const audited: AuditEvent[] = [];
  const audit = (event: AuditEvent): void => void audited.push(event);
  const ingress = await createIngress({
    service: 'interop',
    version: '0',
    deadlines: { deadline: (name) => Deadline.after(name, 5000) },
    routes: brownoutRoutes({ sentinel: called.sentinel, audit }),
    access: ACCESS,
    reasons: REASONS,
    metrics: new Metrics('interop'),
  });
  t.after(async () => await ingress[Symbol.asyncDispose]());
  const url = await ingress.listen();
  const get = (): Promise<Reply> => send(url, 'GET', '/admin/brownout', { headers: ADMIN });
  const put = (body: unknown): Promise<Reply> =>
    send(url, 'PUT', '/admin/brownout', {
      headers: { ...ADMIN, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  return { ...called, audited, get, put };
}

test('an operator sheds bridges for a time, sees it, and ends it early; each change is audited', async (t) => {
  const { get, put, audited, sentinel, events, problems } = await listening(t);
  const before = (await get()).json as BrownoutDto;
  assert.deepEqual([before.mode, before.active, before.upstreams.length], ['auto', false, 3]);
  const until_ms = sched.wall_ms() + HOUR_MS;
  const on = await put({ mode: 'on', until_ms, why: 'storage moves' });
  assert.equal(on.status, 200, on.text);
  assert.equal(on.headers['cache-control'], 'no-store');
  const { upstreams, ...rest } = on.json as BrownoutDto;
  assert.deepEqual(rest, { mode: 'on', until_ms, why: 'storage moves', active: true });
  assert.ok(upstreams.every(({ sheds, active }) => sheds && !active));
  assert.ok(sentinel.shedsPut);
  assert.match(problems.brownout()!, /storage moves/);
  assert.equal((await put({ mode: 'auto' })).json.active, false);
  assert.deepEqual(
    audited.map((event) => event.kind === 'admin' && [event.action, event.detail, event.subject, event.capability_id]),
    [
      ['brownout on', 'storage moves', 'operator', 'cap-1'],
      ['brownout auto', undefined, 'operator', 'cap-1'],
    ],
  );
  assert.deepEqual(events, [
    { kind: 'brownout set', mode: 'on', why: 'storage moves' },
    { kind: 'brownout set', mode: 'auto', why: undefined },
  ]);
});

test('a wrong request is refused, changes nothing and is not audited', async (t) => {
  const { put, audited, sentinel } = await listening(t);
  const soon_ms = sched.wall_ms() + HOUR_MS;
  for (const body of [
    {},
    { mode: 'maybe' },
    { mode: 'on' },
    { mode: 'off' },
    { mode: 'on', until_ms: sched.wall_ms() - 1 },
    { mode: 'on', until_ms: sched.wall_ms() + 25 * HOUR_MS },
    { mode: 'on', until_ms: soon_ms + 0.5 },
    { mode: 'on', until_ms: -soon_ms },
    { mode: 'on', until_ms: String(soon_ms) },
    { mode: 'auto', until_ms: soon_ms },
    { mode: 'on', until_ms: soon_ms, why: '' },
    { mode: 'on', until_ms: soon_ms, why: 'x'.repeat(257) },
    { mode: 'on', until_ms: soon_ms, why: 'two\nlines' },
    { mode: 'on', until_ms: soon_ms, upstream: 'storage' },
  ])
    assertRefusal(await put(body), 400, 'validation');
  assert.deepEqual([audited, sentinel.mode().mode], [[], 'auto']);
});

test('an interop without upstreams sheds nothing and says which key is missing', async (t) => {
  const { passport, kms, problems }: Called = await calling(t);
  assert.equal(problems.passport(), 'auth.passport_url is not set');
  assert.equal(kms.problem, 'auth.kms_url is not set');
  assert.deepEqual(
    [passport.sheds, kms.sheds, problems.storage(), problems.brownout()],
    [false, false, undefined, undefined],
  );
});
