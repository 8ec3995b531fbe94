/** Functions that the tests of the blocking pool run in its threads. */
import { threadId } from 'node:worker_threads';
import { RonError } from '../src/errors.ts';

export const notAFunction = 1;

export const add = (a: number, b: number): number => a + b;

export const where = (): number => threadId;

export const later = (value: string): Promise<string> => Promise.resolve(value);

export const sum = (bytes: Uint8Array): number => bytes.reduce((total, byte) => total + byte, 0);

export const fail = (): never => {
  throw new RangeError('out of range');
};

export const refuse = (): never => {
  throw new RonError('paced', 'not now', { op: 'refuse', retry_after_ms: 7 });
};

export const exit = (code: number): never => process.exit(code);

/** Computes forever. Tells that it has begun in the first cell. */
export const spin = (state: Int32Array): never => {
  Atomics.store(state, 0, 1);
  Atomics.notify(state, 0);
  for (;;);
};

/** Says in the first cell that it has begun, and waits for the second to be set. */
export const wait = (state: Int32Array): number => {
  Atomics.add(state, 0, 1);
  Atomics.notify(state, 0);
  Atomics.wait(state, 1, 0);
  return threadId;
};

export const uncopyable = (): (() => void) => () => {};

/** Ends well, and breaks its thread afterwards. */
export const breakLater = (): string => {
  setImmediate(() => {
    throw new Error('after the job');
  });
  return 'done';
};
