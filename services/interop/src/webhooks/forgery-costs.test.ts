/** A forger pays for Ed25519 checks with the rate of its address; others do not pay, and small requests do not wait for large ones. */
import assert from 'node:assert/strict';
import { createHmac, createSecretKey, generateKeyPairSync, sign } from 'node:crypto';
import { test } from 'node:test';
import type { RouteContext } from '@ron/ingress';
import { Cell, Deadline, Mpsc, RonError } from '@ron/kernel';
import type { AuditEvent } from '../audit/audit-event.ts';
import { DeliveryRecorder } from '../deliveries/delivery-recorder.ts';
import { RecentDeliveries } from '../deliveries/recent-deliveries.ts';
import { RefusalSums } from '../deliveries/refusal-sums.ts';
import type { Provider } from '../providers/providers.ts';
import { AddressRates } from './address-rates.ts';
import { Intake } from './intake.ts';
import { ProviderLimiter } from './provider-limiter.ts';
import { SourceChecks } from './source-checks.ts';
import { UnverifiedBytes } from './unverified-bytes.ts';

const MIB = 1024 * 1024;
const BODY = Buffer.from('{"a":1}');
const SECRET = Buffer.from('a secret of sixteen bytes');
const PAIRS = [generateKeyPairSync('ed25519'), generateKeyPairSync('ed25519')] as const;
const FORGED = `v1a,${Buffer.alloc(64, 7).toString('base64')}`;

function make(kind: 'hmac' | 'ed25519', rate: number) {
  const limits = { rps: 1000, inflight: 100 };
  const provider = {
    descriptor: { name: 'shop', scheme: 'standard', topic: 'hooks.shop', networks: [], origins: [], limits },
    incarnation: 1,
    secrets: PAIRS.map(({ publicKey }, at) => ({
      version: at + 1,
      kind,
      key: kind === 'ed25519' ? publicKey : createSecretKey(SECRET),
    })),
    countUse: () => undefined,
  } satisfies Provider;
  const state = { provider: provider as Provider | undefined, keys: [] as string[], onStore: () => undefined as void };
  const providers = { get: () => state.provider };
  const recorder = new DeliveryRecorder({
    recent: new RecentDeliveries(),
    sums: new RefusalSums(new Cell('counters', 3, new Map())),
    audit: new Mpsc<AuditEvent>('audit', 512),
    events: { publish: () => 0 },
  });
  const intake = new Intake({
    providers,
    source: new SourceChecks(providers, new AddressRates(() => rate)),
    unverified: new UnverifiedBytes(1024 * MIB),
    limits: new ProviderLimiter(),
    sender: {
      store: async ({ delivery, receipt }) => {
        state.keys.push(delivery.idempotency_key);
        state.onStore();
        return { receipt: receipt.id, duplicate: false, place: 'mailbox' };
      },
    },
    recorder,
    tolerance_ms: () => 300_000,
    bodyDeadline: (parent) => parent.child('body', 5000),
    requestDeadline: (parent) => parent.child('webhook', 2000),
  });
  return { intake, provider, state, recorder };
}

type Sign = (signed: Buffer) => string;
const byKey =
  (at: 0 | 1): Sign =>
  (signed) =>
    `v1a,${sign(null, signed, PAIRS[at].privateKey).toString('base64')}`;
const byHmac: Sign = (signed) => `v1,${createHmac('sha256', SECRET).update(signed).digest('base64')}`;

function request(signature: string | Sign, body: Buffer = BODY, deadline = Deadline.after('request', 60_000)) {
  const time = String(Math.floor(Date.now() / 1000));
  const signed = Buffer.concat([Buffer.from(`msg_1.${time}.`), body]);
  const headers: Readonly<Record<string, string>> = {
    'webhook-id': 'msg_1',
    'webhook-timestamp': time,
    'webhook-signature': typeof signature === 'string' ? signature : signature(signed),
  };
  return {
    ip: '192.0.2.1',
    corr_id: 'c',
    deadline,
    chargeRate: () => undefined,
    headerValues: (name: string) => (name in headers ? [headers[name]!] : []),
    park: <T>(work: () => Promise<T>) => work(),
    stream: (async function* () {
      yield body;
    })(),
  } as unknown as RouteContext;
}

test('an address at 500/s gets few forged Ed25519 requests checked', async () => {
  for (const [signatures, checked_max] of [
    [`${FORGED} ${FORGED}`, 16],
    [FORGED, 30],
  ] as const) {
    const { intake } = make('ed25519', 500);
    let checked = 0;
    const post = (): Promise<unknown> => intake.handle('shop', request(signatures));
    const isRefused = (error: RonError): boolean => error.code === 'address_rate_limited';
    for (let isOver = false; !isOver; checked += 1) {
      isOver = await post().then(
        () => assert.fail('a forgery was accepted'),
        (error: RonError) => isRefused(error),
      );
      assert.ok(checked < checked_max, `${checked} forgeries were checked`);
    }
    assert.ok(checked > 5);
  }
});

test('of forgeries that were admitted together, few are checked', async () => {
  const { intake } = make('ed25519', 500);
  const codes = await Promise.all(
    Array.from({ length: 400 }, () =>
      intake.handle('shop', request(`${FORGED} ${FORGED}`)).then(
        () => 'accepted',
        ({ code }: RonError) => code,
      ),
    ),
  );
  const checked = codes.filter((code) => code === 'unauthorized').length;
  assert.ok(checked > 0 && checked < 40, `${checked} forgeries were checked`);
  assert.equal(codes.filter((code) => code === 'address_rate_limited').length, 400 - checked);
});

test('a signed delivery costs one request, by whichever key it is signed; a forged digest does too', async () => {
  const { intake } = make('ed25519', 10);
  for (let at = 0; at < 10; at += 1) await intake.handle('shop', request(byKey((at % 2) as 0 | 1)));
  const other = make('hmac', 10);
  for (let at = 0; at < 10; at += 1)
    await assert.rejects(other.intake.handle('shop', request(`v1,${Buffer.alloc(32).toString('base64')}`)), {
      reason: 'BAD_ORIGIN',
    });
});

test('a forger that leaves before the verdict is charged for the checks until then', async () => {
  const { intake } = make('ed25519', 21);
  const left = new AbortController();
  using deadline = Deadline.after('request', 60_000, { signal: left.signal });
  // A turn has room for two checks of this body.
  const forged = intake.handle('shop', request(`${FORGED} ${FORGED}`, Buffer.alloc(300 * 1024), deadline));
  setImmediate(() => left.abort(new RonError('canceled', 'the client left')));
  await assert.rejects(forged);
  await assert.rejects(intake.handle('shop', request(FORGED)), { code: 'address_rate_limited' });
});

test('[interop I-7] a small signed request does not wait behind large forged ones', async () => {
  const { intake } = make('hmac', 1000);
  const large = Buffer.alloc(MIB);
  const state = { turns: 0, isDone: false };
  const forged = Array.from({ length: 16 }, () =>
    intake.handle('shop', request(`v1,${Buffer.alloc(32).toString('base64')}`, large)).catch(() => undefined),
  );
  const small = intake.handle('shop', request(byHmac)).finally(() => (state.isDone = true));
  for (; !state.isDone; state.turns += 1) await new Promise((resolve) => setImmediate(resolve));
  // Behind the first 256 KiB of each it would wait for seven turns.
  assert.ok(state.turns <= 2, `${state.turns} turns`);
  await Promise.all([small, ...forged]);
});

test('a provider that was added again gives its deliveries other keys', async () => {
  const { intake, provider, state } = make('hmac', 1000);
  await intake.handle('shop', request(byHmac));
  await intake.handle('shop', request(byHmac));
  state.provider = { ...provider, incarnation: 2 };
  await intake.handle('shop', request(byHmac));
  const [first, again, added] = state.keys;
  assert.equal(again, first);
  assert.notEqual(added, first);
});

test('a request that outlives its provider does not bring back its counters', async () => {
  const { intake, recorder, state } = make('hmac', 1000);
  await intake.handle('shop', request(byHmac));
  state.onStore = () => {
    state.provider = undefined;
    recorder.forget('shop');
  };
  await intake.handle('shop', request(byHmac));
  assert.deepEqual([...recorder.totals.keys()], ['- accepted']);
});
