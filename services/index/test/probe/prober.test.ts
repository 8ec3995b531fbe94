/** The prober as a whole: its queue, its pace, and the verdicts that lookups read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Breaker, Mpsc } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { formatAddress, type Address } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { Prober, type ProbeRequest } from '../../src/probe/prober.ts';
import { storageTarget } from '../../src/resolve/evidence.ts';
import type { ProbeResult } from '../../src/probe/prove.ts';
import { ABSENT_MS, FAILED_MS, PROVEN_MS, RENEW_FRESH_MS, RENEW_MS, Verdicts } from '../../src/probe/verdicts.ts';
import { answers, honest, ProviderServer, stalls } from './provider-server.ts';

const addressAt = (at: number): Address => formatAddress(new Uint8Array(32).fill(at));
const BREAKER = {
  error_window_ms: 60_000,
  trip_threshold: 0.5,
  calls_min: 2,
  cooldown_ms: 60_000,
  half_open_probes: 1,
};

class Rig implements AsyncDisposable {
  readonly channel: Mpsc<ProbeRequest>;
  readonly prober: Prober;
  readonly changes: Address[] = [];
  readonly results: ProbeResult[] = [];
  readonly breakers = new Map<string, Breaker>();
  readonly #stopping = new AbortController();
  readonly #run: Promise<void>;

  constructor({ capacity = 256, probe_ms = 10_000, probes_per_s = 1000 } = {}) {
    this.channel = new Mpsc<ProbeRequest>('probes', capacity);
    this.prober = new Prober({
      channel: this.channel,
      probe_ms,
      probes_per_s,
      breakers: { state: (id) => this.#breaker(id).state, admit: (id) => this.#breaker(id).tryAcquire() },
      onChange: (address) => this.changes.push(address),
      onProbed: (_request, result) => this.results.push(result),
    });
    this.#run = this.prober.run({ signal: new AbortController().signal, stopping: this.#stopping.signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping.abort();
    await this.#run;
  }

  #breaker(id: string): Breaker {
    const breaker = this.breakers.get(id) ?? new Breaker(id, BREAKER);
    this.breakers.set(id, breaker);
    return breaker;
  }
}

test('a verdict appears, is reported once, and one probe at a time runs for a provider', async () => {
  await using server = await ProviderServer.start();
  await using rig = new Rig();
  const address = server.put(Uint8Array.of(1, 2, 3));
  const provider = { id: 'p', url: server.url };
  assert.equal(rig.prober.verdict(address, provider), undefined);
  for (let at = 0; at < 5; at++) rig.prober.request(address, provider);
  await eventually('the proof', () => rig.prober.verdict(address, provider) === 'proven');
  assert.equal(rig.prober.size(address), 3);
  assert.ok(rig.prober.latency_ms('p')! > 0);
  assert.deepEqual(rig.changes, [address]);
  rig.prober.request(address, provider);
  assert.equal(rig.channel.depth, 0, 'a fresh proof is not repeated');
  assert.equal(server.offsets.length, 1);
  assert.equal(
    rig.prober.verdict(address, { ...provider, url: 'http://127.0.0.1:1' }),
    undefined,
    'another URL proves nothing',
  );
});

test('a provider that has not got the object fails until it announces the object again', async () => {
  await using server = await ProviderServer.start();
  await using rig = new Rig();
  const bytes = Uint8Array.of(9);
  const address = server.put(bytes);
  const provider = { id: 'p', url: server.url };
  server.handler = answers(404);
  rig.prober.request(address, provider);
  await eventually('the verdict', () => rig.prober.verdict(address, provider) === 'failed');
  server.handler = honest;
  rig.prober.request(address, provider);
  assert.equal(rig.channel.depth, 0, 'a failed provider is not probed again');
  rig.prober.forgetFailures(address);
  rig.prober.request(address, provider);
  await eventually('the proof', () => rig.prober.verdict(address, provider) === 'proven');
  assert.deepEqual(rig.changes, [address, address]);
});

test('a stalled provider delays no other one, and its breaker opens', async () => {
  await using stalled = await ProviderServer.start();
  await using server = await ProviderServer.start();
  await using rig = new Rig({ probe_ms: 300 });
  stalled.handler = stalls;
  for (let at = 0; at < 4; at++) rig.prober.request(addressAt(at), { id: 'stalled', url: stalled.url });
  const address = server.put(Uint8Array.of(1));
  rig.prober.request(address, { id: 'good', url: server.url });
  await eventually('the proof', () => rig.prober.verdict(address, { id: 'good', url: server.url }) === 'proven');
  await eventually('the breaker', () => rig.breakers.get(storageTarget('stalled'))!.state === 'open');
  assert.equal(
    rig.prober.verdict(addressAt(0), { id: 'stalled', url: stalled.url }),
    undefined,
    'silence proves nothing',
  );
  await eventually('all four end', () => rig.prober.totals.unreachable + rig.prober.totals.skipped === 4);
  rig.prober.request(addressAt(9), { id: 'stalled', url: stalled.url });
  const { skipped } = rig.prober.totals;
  await eventually('not sent', () => rig.prober.totals.skipped === skipped + 1);
});

test('[index I-3] the queue is bounded: the oldest request is dropped and may come again', () => {
  const channel = new Mpsc<ProbeRequest>('probes', 2);
  const prober = new Prober({
    channel,
    probe_ms: 1000,
    breakers: { state: () => 'closed', admit: () => undefined },
    onChange: () => undefined,
  });
  const provider = { id: 'p', url: 'http://127.0.0.1:1' };
  for (const at of [1, 2, 3, 1]) prober.request(addressAt(at), provider);
  assert.equal(channel.depth, 2);
  assert.equal(channel.dropped_total, 2);
});

test('at most ten probes begin in a second', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const channel = new Mpsc<ProbeRequest>('probes', 256);
    let begun = 0;
    const prober = new Prober({
      channel,
      probe_ms: 1000,
      breakers: { state: () => 'closed', admit: () => void (begun += 1) },
      onChange: () => undefined,
    });
    const stopping = new AbortController();
    const run = prober.run({ signal: stopping.signal, stopping: stopping.signal });
    for (let at = 0; at < 100; at++) prober.request(addressAt(at), { id: 'p', url: 'http://127.0.0.1:1' });
    const second = (): Promise<void> => clock.advance(1000);
    await second();
    assert.ok(begun >= 9 && begun <= 11, `${begun} in the first second`);
    await second();
    assert.ok(begun >= 18 && begun <= 21, `${begun} in two seconds`);
    stopping.abort();
    await run;
  });
});

test('verdicts expire, so that a node can recover, and are bounded', async () => {
  const clock = new VirtualSched();
  await clock.during(() => {
    const verdicts = new Verdicts();
    const [address, provider] = [addressAt(1), { id: 'p', url: 'u' }];
    assert.equal(verdicts.setFailed(address, provider, 'false_bytes'), true);
    assert.equal(verdicts.isDue(address, provider), false);
    clock.advanceSync(FAILED_MS);
    assert.equal(verdicts.verdict(address, provider), undefined);
    verdicts.setFailed(address, provider, 'absent');
    clock.advanceSync(ABSENT_MS);
    assert.equal(verdicts.isDue(address, provider), true);
    assert.equal(verdicts.setProven(address, provider, 5, 100), true);
    assert.equal(verdicts.setProven(address, provider, 5, 200), false, 'no change');
    assert.equal(verdicts.latency_ms('p'), 130);
    clock.advanceSync(RENEW_FRESH_MS + 1);
    assert.equal(verdicts.isDue(address, provider), false);
    assert.equal(verdicts.isDue(address, provider, true), true, 'a fresh lookup renews a recent proof');
    clock.advanceSync(RENEW_MS - RENEW_FRESH_MS);
    assert.equal(verdicts.verdict(address, provider), 'proven');
    assert.equal(verdicts.isDue(address, provider), true, 'it is renewed long before it expires');
    clock.advanceSync(PROVEN_MS - RENEW_MS);
    assert.equal(verdicts.verdict(address, provider), undefined);
    assert.equal(verdicts.size(address), 5, 'a size does not expire');
    for (let at = 0; at < 100; at++) verdicts.setProven(address, { id: `q${at}`, url: 'u' }, 5, 1);
    assert.equal(verdicts.verdict(address, { id: 'q0', url: 'u' }), undefined);
    assert.equal(verdicts.verdict(address, { id: 'q99', url: 'u' }), 'proven');
  });
});
