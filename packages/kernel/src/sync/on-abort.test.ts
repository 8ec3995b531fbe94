import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import test from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { NEVER } from './never.ts';
import { onAbort } from './on-abort.ts';

const listeners = (signal: AbortSignal): number => getEventListeners(signal, 'abort').length;

test('an abort calls the listener once with the reason and removes it', () => {
  const controller = new AbortController();
  const reasons: unknown[] = [];
  onAbort(controller.signal, (reason) => reasons.push(reason));
  assert.equal(listeners(controller.signal), 1);
  assert.deepEqual(reasons, []);
  controller.abort('stop');
  controller.abort('again');
  assert.deepEqual(reasons, ['stop']);
  assert.equal(listeners(controller.signal), 0);
});

test('a signal that has aborted calls the listener before the call returns', () => {
  const reasons: unknown[] = [];
  const registration = onAbort(AbortSignal.abort('before'), (reason) => reasons.push(reason));
  assert.deepEqual(reasons, ['before']);
  registration[Symbol.dispose]();
});

test('a disposed registration leaves no listener and is not called', () => {
  const controller = new AbortController();
  const reasons: unknown[] = [];
  {
    using registration = onAbort(controller.signal, (reason) => reasons.push(reason));
    registration[Symbol.dispose]();
    assert.equal(listeners(controller.signal), 0);
  }
  controller.abort('late');
  assert.deepEqual(reasons, []);
});

test('two registrations of one function on one signal are independent', () => {
  const controller = new AbortController();
  let calls = 0;
  const listener = (): void => void (calls += 1);
  const first = onAbort(controller.signal, listener);
  onAbort(controller.signal, listener);
  first[Symbol.dispose]();
  controller.abort();
  assert.equal(calls, 1);
});

test('the signal that never aborts gets no listener', () => {
  onAbort(NEVER, () => assert.fail('NEVER aborted'));
  assert.equal(listeners(NEVER), 0);
});

test('a disposed registration keeps nothing of its listener', async () => {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  const { signal } = new AbortController();
  const registrations: Disposable[] = [];
  const register = (): WeakRef<object> => {
    const reached = {};
    registrations.push(onAbort(signal, () => void reached));
    return new WeakRef(reached);
  };
  const reached = register();
  registrations[0]![Symbol.dispose]();
  // A WeakRef keeps its target until the end of the turn.
  await setImmediate();
  gc();
  assert.equal(reached.deref(), undefined);
  assert.equal(registrations.length, 1);
});
