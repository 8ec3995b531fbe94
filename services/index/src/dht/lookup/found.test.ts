import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressOf } from '../testing/world.ts';
import { peerIdOf } from '../testing/network.ts';
import type { ProviderClaim } from '../peers.ts';
import { FOUND_MAX, PER_PEER_MAX, ProviderResult } from './found.ts';

const SELF = peerIdOf('self');

function open(verdicts: ReadonlyMap<string, 'proven' | 'failed'> = new Map()) {
  const result = new ProviderResult(addressOf('an object'), SELF, {
    verdict: (_address, { url }) => verdicts.get(url!),
  });
  let peers = 0;
  const report = (...providers: ProviderClaim[]) =>
    result.onAnswer(peerIdOf(`peer ${peers++}`), { providers, value: undefined, closer: [] });
  return { result, report };
}

/** Fills the result with unproven providers. */
function fill(report: (...providers: ProviderClaim[]) => unknown, url: (at: number) => string | undefined): void {
  for (let at = 0; at < FOUND_MAX; at += PER_PEER_MAX) {
    report(
      ...Array.from({ length: PER_PEER_MAX }, (_, of) => ({ id: peerIdOf(`claim ${at + of}`), url: url(at + of) })),
    );
  }
}

test('the fourth liar about the URL of a provider hides the true one until the prober has refused them', () => {
  const [id, failed] = [peerIdOf('honest'), new Map<string, 'failed'>()];
  const { result, report } = open(failed);
  for (let at = 0; at < 4; at += 1) report({ id, url: `http://127.0.0.1:${1000 + at}` });
  report({ id, url: 'http://127.0.0.1:7101' });
  assert.equal(result.providers.length, 4);
  for (let at = 0; at < 4; at += 1) failed.set(`http://127.0.0.1:${1000 + at}`, 'failed');
  report({ id, url: 'http://127.0.0.1:1000' });
  report({ id, url: 'http://127.0.0.1:7101' });
  assert.ok(result.providers.some(({ url }) => url === 'http://127.0.0.1:7101'));
  assert.equal(result.providers.length, 4);
});

test('in a full result, claims without a URL and failed ones give way to others, and unproven ones to a proven one', () => {
  const verdicts = new Map<string, 'proven' | 'failed'>([
    ['http://127.0.0.1:1', 'failed'],
    ['http://127.0.0.1:3', 'proven'],
  ]);
  for (const useless of [undefined, 'http://127.0.0.1:1']) {
    const { result, report } = open(verdicts);
    fill(report, () => useless);
    assert.equal(result.isSatisfied, false);
    assert.equal(result.isUseful, false);
    fill(report, () => 'http://127.0.0.1:2');
    report({ id: peerIdOf('new'), url: 'http://127.0.0.1:2' });
    assert.equal(result.providers.length, FOUND_MAX);
    assert.ok(result.providers.every(({ url }) => url === 'http://127.0.0.1:2'));
    report({ id: peerIdOf('proven'), url: 'http://127.0.0.1:3' });
    assert.equal(result.providers.at(-1)?.id, peerIdOf('proven'));
    assert.equal(result.providers.length, FOUND_MAX);
  }
});

test('the records of this node are no second opinion', () => {
  const { result, report } = open();
  const claim = { id: peerIdOf('liar'), url: 'http://127.0.0.1:1' };
  result.onAnswer(SELF, { providers: [claim], value: undefined, closer: [] });
  report(claim);
  assert.equal(result.isSatisfied, false);
  report(claim);
  assert.equal(result.isSatisfied, true);
});
