/** The task tries again with growing pauses, starves no provider, and stops at once. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Notify, RonError, sched } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { refreshSecrets, type RefreshedProviders } from './secret-refresh.ts';

interface Fake extends RefreshedProviders {
  readonly reconciled: { readonly name: string; readonly at_ms: number }[];
  readonly failing: Set<string>;
  readonly due_names: Set<string>;
  end_ms: number;
}

function fake(...names: string[]): Fake {
  return {
    changed: new Notify('providers'),
    reconciled: [],
    failing: new Set(),
    due_names: new Set(names),
    end_ms: Infinity,
    get next_end_ms() {
      return this.end_ms;
    },
    due() {
      return [...this.due_names];
    },
    reconcile(name) {
      this.reconciled.push({ name, at_ms: sched.now_ms() });
      if (this.failing.has(name)) return Promise.reject(new RonError('not_ready', 'kms is away'));
      this.due_names.delete(name);
      return Promise.resolve();
    },
  };
}

async function running(providers: Fake, use: (clock: VirtualSched) => Promise<void>): Promise<void> {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const stopping = new AbortController();
    const task = refreshSecrets(providers, stopping.signal);
    await clock.settle();
    await use(clock);
    stopping.abort(new RonError('draining', 'stop'));
    await task;
    assert.equal(clock.timers.length, 0, 'no timer is left');
  });
}

test('[interop I-4] a failed round is repeated after pauses that grow to 30 s, until kms answers', async () => {
  const providers = fake('a');
  providers.failing.add('a');
  await running(providers, async (clock) => {
    await clock.advance(300_000);
    const pauses = providers.reconciled
      .map(({ at_ms }, at) => at_ms - (providers.reconciled[at - 1]?.at_ms ?? 0))
      .slice(1);
    assert.deepEqual(pauses.slice(0, 4), [250, 500, 1000, 2000]);
    assert.ok(
      pauses.every((pause_ms) => pause_ms <= 36_000),
      pauses.join(),
    );
    assert.ok(pauses.at(-1)! >= 30_000);
    providers.failing.clear();
    await clock.advance(36_000);
    assert.equal(providers.due_names.size, 0);
    const tries = providers.reconciled.length;
    await clock.advance(600_000);
    assert.equal(providers.reconciled.length, tries, 'nothing is due');
  });
});

test('providers that always fail do not keep others closed', async () => {
  const providers = fake('a', 'b', 'c', 'd', 'e', 'f');
  for (const name of ['a', 'b', 'c', 'd']) providers.failing.add(name);
  await running(providers, async (clock) => {
    assert.equal(providers.reconciled.length, 3, 'a round ends after three failures');
    await clock.advance(10_000);
    assert.deepEqual([...providers.due_names], ['a', 'b', 'c', 'd']);
  });
});

test('a change and the end of a secret wake the task', async () => {
  const providers = fake();
  await running(providers, async (clock) => {
    providers.due_names.add('a');
    providers.end_ms = clock.wall_ms() + 5000;
    providers.changed.notifyOne();
    await clock.settle();
    assert.deepEqual(
      providers.reconciled.map(({ name }) => name),
      ['a'],
    );
    await clock.advance(4999);
    providers.due_names.add('b');
    providers.end_ms = Infinity;
    assert.equal(providers.reconciled.length, 1);
    await clock.advance(1);
    assert.deepEqual(providers.reconciled.at(-1), { name: 'b', at_ms: 5000 });
    providers.due_names.add('c');
    await clock.advance(60_000);
    assert.equal(providers.reconciled.at(-1)!.name, 'c', 'the wall clock is compared at least once a minute');
  });
});
