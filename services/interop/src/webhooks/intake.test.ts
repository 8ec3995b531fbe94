import assert from 'node:assert/strict';
import { createHmac, createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import type { RouteContext } from '@ron/ingress';
import { Cell, Deadline, Mpsc, RonError, type Broadcast } from '@ron/kernel';
import type { Descriptor } from '@ron/proto';
import type { AuditEvent } from '../audit/audit-event.ts';
import { DeliveryRecorder } from '../deliveries/delivery-recorder.ts';
import { RecentDeliveries } from '../deliveries/recent-deliveries.ts';
import { RefusalSums } from '../deliveries/refusal-sums.ts';
import type { VerifiedDelivery } from '../delivery/accepted.ts';
import type { InteropEvent } from '../events.ts';
import type { Provider } from '../providers/providers.ts';
import { AddressRates } from './address-rates.ts';
import { SourceChecks } from './source-checks.ts';
import { Intake } from './intake.ts';
import { ProviderLimiter } from './provider-limiter.ts';
import { UnverifiedBytes } from './unverified-bytes.ts';

const MIB = 1024 * 1024;
const SECRET = Buffer.from('a secret of sixteen bytes');
const EVENTS = { publish: () => 0 } as unknown as Broadcast<InteropEvent>;

const githubSignature = (body: Uint8Array): string => createHmac('sha256', SECRET).update(body).digest('hex');

function make(
  scheme: Descriptor['scheme'] = 'github',
  limits = { rps: 100, inflight: 10 },
  unverified_bytes = 8 * MIB,
) {
  const networks: string[] = [];
  const descriptor = { name: 'shop', scheme, topic: 'hooks.shop', networks, origins: [], limits };
  const stored: VerifiedDelivery[] = [];
  const uses: number[] = [];
  const provider: Provider = {
    descriptor,
    incarnation: 1,
    secrets: [1, 2].map((version) => ({
      version,
      kind: 'hmac',
      key: createSecretKey(version === 1 ? SECRET : Buffer.alloc(32)),
    })),
    countUse: (version) => void uses.push(version),
  };
  const providers = { get: (name: string) => (name === 'shop' ? provider : undefined) };
  const recent = new RecentDeliveries();
  const unverified = new UnverifiedBytes(unverified_bytes, unverified_bytes / 2);
  const recorder = new DeliveryRecorder({
    recent,
    sums: new RefusalSums(new Cell('counters', 3, new Map())),
    audit: new Mpsc<AuditEvent>('audit', 512),
    events: EVENTS,
  });
  const intake = new Intake({
    providers: providers,
    source: new SourceChecks(providers, new AddressRates(() => 1000)),
    unverified,
    limits: new ProviderLimiter(),
    sender: {
      store: async (delivery) => {
        assert.equal(unverified.bytes, 0, 'a verified body does not count while it is stored');
        stored.push(delivery);
        return { receipt: delivery.receipt.id, duplicate: false, place: 'mailbox' };
      },
    },
    recorder,
    tolerance_ms: () => 300_000,
    bodyDeadline: (parent) => parent.child('body', 5000),
    requestDeadline: (parent) => parent.child('webhook', 2000),
  });
  const outcomes = (): unknown[] => recent.page(0, 500).deliveries.map(({ outcome, reason }) => [outcome, reason]);
  return { intake, stored, uses, recent, unverified, outcomes, descriptor };
}

interface Given {
  readonly headers: Readonly<Record<string, string>>;
  readonly pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  readonly chargeRate?: () => void;
  readonly deadline?: Deadline;
}

const contextOf = ({ headers, pieces, chargeRate = () => undefined, deadline }: Given): RouteContext =>
  ({
    ip: '192.0.2.1',
    corr_id: 'c',
    deadline: deadline ?? Deadline.after('request', 60_000),
    chargeRate,
    park: (read: () => Promise<unknown>) => read(),
    headerValues: (name: string) => (name in headers ? [headers[name]!] : []),
    stream: (async function* () {
      yield* pieces;
    })(),
  }) as unknown as RouteContext;

const signedBy = (body: Uint8Array, headers: Readonly<Record<string, string>> = {}): Given => ({
  headers: { 'x-hub-signature-256': `sha256=${githubSignature(body)}`, ...headers },
  pieces: [body],
});
const BODY = Buffer.from('{"a":1}');

test('a verified delivery is stored byte for byte with its receipt, and recorded once', async () => {
  const { intake, stored, uses, recent, unverified } = make();
  const context = contextOf({
    ...signedBy(BODY, { 'content-type': 'application/json' }),
    pieces: [...BODY].map((byte) => Buffer.of(byte)),
  });
  const answer = await intake.handle('shop', context);
  assert.ok(answer.kind === 'json' && answer.status === 202);
  const [{ delivery, receipt } = assert.fail('nothing was stored')] = stored;
  assert.deepEqual(Buffer.from(delivery.payload), BODY);
  assert.deepEqual(
    [receipt.id, receipt.bytes, receipt.topic, receipt.secret_version],
    [delivery.id, 7, 'hooks.shop', 1],
  );
  assert.deepEqual(answer.headers, { 'X-Ron-Receipt': receipt.id });
  assert.equal((answer.value as { b3: string }).b3, receipt.b3);
  assert.deepEqual(
    recent.page(0, 9).deliveries.map(({ outcome }) => outcome),
    ['accepted'],
  );
  assert.deepEqual([uses, unverified.bytes, stored.length], [[1], 0, 1]);
});

test('a forged delivery takes no limit, no rate and no memory, and stores nothing', async () => {
  const { intake, stored, uses, unverified, outcomes } = make('github', { rps: 1, inflight: 1 });
  let charged = 0;
  for (let at = 0; at < 5; at += 1) {
    const forged = { ...signedBy(BODY), pieces: [Buffer.from('{"a":2}')], chargeRate: () => void (charged += 1) };
    await assert.rejects(intake.handle('shop', contextOf(forged)), { code: 'unauthorized', reason: 'BAD_ORIGIN' });
  }
  assert.deepEqual([stored.length, uses, charged, unverified.bytes], [0, [], 0, 0]);
  await intake.handle('shop', contextOf({ ...signedBy(BODY), chargeRate: () => void (charged += 1) }));
  assert.equal(charged, 1);
  assert.deepEqual(outcomes(), [
    ...Array.from({ length: 5 }, () => ['refused', 'BAD_ORIGIN']),
    ['accepted', undefined],
  ]);
});

test('the bytes of a body count while it is read, and are released however the request ends', async () => {
  const { intake, unverified, outcomes } = make();
  const seen: number[] = [];
  async function* slow(fails: boolean) {
    for (let at = 0; at < 3; at += 1) {
      yield Buffer.alloc(10);
      seen.push(unverified.bytes);
    }
    if (fails) throw new RonError('bad_request', 'the client left');
  }
  await assert.rejects(intake.handle('shop', contextOf({ headers: {}, pieces: slow(true) })), { code: 'bad_request' });
  assert.deepEqual([seen, unverified.bytes], [[10, 20, 30], 0]);
  await assert.rejects(intake.handle('shop', contextOf({ headers: {}, pieces: slow(false) })), {
    code: 'unauthorized',
  });
  assert.equal(unverified.bytes, 0);
  assert.deepEqual(outcomes(), [
    ['refused', undefined],
    ['refused', 'BAD_ORIGIN'],
  ]);
});

test('[interop I-10] a body of 1 MiB is accepted, one byte more is 413, at any split', async () => {
  const { intake, stored, unverified } = make();
  const whole = Buffer.alloc(MIB, 'x');
  for (const size of [1000, 65_536, MIB]) {
    const pieces = Array.from({ length: Math.ceil(MIB / size) }, (_, at) => whole.subarray(at * size, (at + 1) * size));
    await intake.handle('shop', contextOf({ ...signedBy(whole), pieces }));
    assert.ok(whole.equals(stored.at(-1)!.delivery.payload));
    const longer = contextOf({ ...signedBy(whole), pieces: [...pieces, Buffer.of(1)] });
    await assert.rejects(intake.handle('shop', longer), { code: 'payload_too_large' });
    assert.equal(unverified.bytes, 0);
  }
});

test('a body that does not arrive in time is 408 without a reason: no upstream was late', async () => {
  const { intake, unverified, outcomes } = make();
  async function* endless() {
    yield Buffer.alloc(10);
    await new Promise(() => undefined);
  }
  const deadline = Deadline.after('webhook', 20);
  const late = intake.handle('shop', contextOf({ headers: {}, pieces: endless(), deadline }));
  await assert.rejects(late, { code: 'request_timeout', status: 408, reason: undefined });
  assert.equal(unverified.bytes, 0);
  assert.deepEqual(outcomes(), [['refused', undefined]]);
});

test('without room for unverified bodies a request is 429 BUSY', async () => {
  const { intake, unverified, outcomes } = make('github', { rps: 9, inflight: 9 }, 1000);
  const body = Buffer.alloc(600);
  await assert.rejects(intake.handle('shop', contextOf(signedBy(body))), { code: 'busy', reason: 'BUSY' });
  assert.equal(unverified.bytes, 0);
  assert.deepEqual(outcomes(), [['refused', 'BUSY']]);
});

test('strangers fill their part of the memory only: an address in the networks of the provider has room', async () => {
  const { intake, unverified, descriptor } = make('github', { rps: 9, inflight: 9 }, 1000);
  const strangers = ['198.51.100.1', '198.51.100.2'].map((ip) => unverified.open(ip));
  strangers[0]!.received(500);
  strangers[1]!.received(250);
  const unsigned = { headers: {}, pieces: [Buffer.alloc(200)] };
  await assert.rejects(intake.handle('shop', contextOf(unsigned)), { reason: 'BUSY' });
  descriptor.networks.push('192.0.2.0/24');
  await assert.rejects(intake.handle('shop', contextOf(unsigned)), { reason: 'BAD_ORIGIN' });
});

test('a verified delivery beyond the limits of its provider or of the listener is 429 and stores nothing', async () => {
  const { intake, stored, outcomes } = make('github', { rps: 2, inflight: 1 });
  const limited = new RonError('rate_limited', 'too fast', { reason: 'RATE_LIMIT' });
  const refuse = (): never => {
    throw limited;
  };
  await assert.rejects(intake.handle('shop', contextOf({ ...signedBy(BODY), chargeRate: refuse })), limited);
  await intake.handle('shop', contextOf(signedBy(BODY)));
  await assert.rejects(intake.handle('shop', contextOf(signedBy(BODY))), { reason: 'RATE_LIMIT' });
  assert.equal(stored.length, 1);
  assert.deepEqual(
    outcomes().map((each) => (each as string[])[0]),
    ['refused', 'accepted', 'refused'],
  );
});

function slack(text: string, chargeRate?: () => void): RouteContext {
  const time = String(Math.floor(Date.now() / 1000));
  const body = Buffer.from(text);
  const signature = createHmac('sha256', SECRET).update(`v0:${time}:`).update(body).digest('hex');
  return contextOf({
    headers: { 'x-slack-signature': `v0=${signature}`, 'x-slack-request-timestamp': time },
    pieces: [body],
    ...(chargeRate !== undefined && { chargeRate }),
  });
}
const CHALLENGE = '{"type":"url_verification","challenge":"abc"}';

test('slack: a replayed challenge spends the limits of its provider and of the listener', async () => {
  const { intake, outcomes } = make('slack', { rps: 1, inflight: 1 });
  let charged = 0;
  await intake.handle(
    'shop',
    slack(CHALLENGE, () => (charged += 1)),
  );
  await assert.rejects(intake.handle('shop', slack(CHALLENGE)), { reason: 'RATE_LIMIT' });
  assert.equal(charged, 1);
  assert.deepEqual(outcomes(), [
    ['challenge', undefined],
    ['refused', 'RATE_LIMIT'],
  ]);
});

test('slack: the challenge is answered and nothing is queued; other requests get 200 with an empty body', async () => {
  const { intake, stored, outcomes } = make('slack');
  const challenge = await intake.handle('shop', slack(CHALLENGE));
  assert.ok(challenge.kind === 'text' && challenge.status === 200 && challenge.text === 'abc');
  assert.equal(stored.length, 0);
  const command = await intake.handle('shop', slack('command=%2Fx'));
  assert.ok(command.kind === 'empty' && command.status === 200);
  assert.equal(command.headers?.['X-Ron-Receipt'], stored[0]!.receipt.id);
  assert.deepEqual(outcomes(), [
    ['challenge', undefined],
    ['accepted', undefined],
  ]);
});

test('an unknown provider is recorded as -, so that names in requests make no labels', async () => {
  const { intake, recent } = make();
  await assert.rejects(intake.handle('made_up', contextOf(signedBy(BODY))), { reason: 'POLICY_BLOCKED' });
  assert.equal(recent.page(0, 9).deliveries[0]!.provider, '-');
});

test('[interop I-7] large forged bodies let other work run between their digests', async () => {
  const { intake } = make('github', { rps: 9, inflight: 9 }, 64 * MIB);
  const body = Buffer.alloc(MIB);
  const headers = { 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` };
  const requests = Array.from({ length: 8 }, () => intake.handle('shop', contextOf({ headers, pieces: [body] })));
  const state = { isDone: false };
  const all = Promise.allSettled(requests).finally(() => (state.isDone = true));
  let turns = 0;
  for (; !state.isDone; turns += 1) await new Promise((resolve) => setImmediate(resolve));
  for (const { status } of await all) assert.equal(status, 'rejected');
  // Two secrets for each: 16 MiB, at 512 KiB a turn.
  assert.ok(turns >= 31, `${turns} turns`);
});

test('[interop I-5] a request whose time is over leaves the queue for digests', async () => {
  const { intake, stored, unverified } = make();
  const left = new AbortController();
  using deadline = Deadline.after('request', 60_000, { signal: left.signal });
  left.abort(new RonError('canceled', 'the client left'));
  await assert.rejects(intake.handle('shop', contextOf({ ...signedBy(BODY), deadline })), {
    message: 'the client left',
  });
  assert.deepEqual([stored.length, unverified.bytes], [0, 0]);
});

test('a sample of the operator takes the same path and is marked', async () => {
  const { intake, stored, recent } = make();
  const { headers } = signedBy(BODY);
  const context = contextOf({ headers: {}, pieces: [] });
  const accepted = await intake.deliverSample(
    'shop',
    { 'X-Hub-Signature-256': headers['x-hub-signature-256']! },
    BODY,
    context,
  );
  assert.equal(accepted.receipt, stored[0]!.receipt.id);
  assert.equal(stored[0]!.delivery.headers['ron-test'], '1');
  assert.equal(recent.page(0, 9).deliveries[0]!.test, true);
  await assert.rejects(intake.deliverSample('shop', {}, BODY, context), { reason: 'BAD_ORIGIN' });
  await assert.rejects(intake.deliverSample('other', {}, BODY, context), {
    code: 'not_found',
    reason: 'POLICY_BLOCKED',
  });
});
