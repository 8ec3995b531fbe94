/** A volume with injected faults, for tests. */
import type { Volume } from '@ron/cas';

type Call = 'put' | 'get' | 'getMany' | 'sync' | 'inventory' | 'listIds' | 'scrub';

export interface Faulty {
  readonly volume: Volume;
  /** The volume without faults. */
  readonly inner: Volume;
  /** The error of calls from now on; undefined ends it. */
  fail(call: Call, error: (() => Error) | undefined): void;
  /** Waits for this before each put. */
  delay: (() => Promise<void>) | undefined;
  /** Reads that begin while this is set never end. */
  hangs: boolean;
  /** How often something was called. */
  readonly calls: Map<string, number>;
}

export function faulty(inner: Volume): Faulty {
  const failures = new Map<string, () => Error>();
  const calls = new Map<string, number>();
  const fault: Pick<Faulty, 'delay' | 'hangs'> = { delay: undefined, hangs: false };
  const volume = new Proxy(inner, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function' || typeof name !== 'string') return value;
      return (...args: unknown[]): unknown => {
        calls.set(name, (calls.get(name) ?? 0) + 1);
        const failure = failures.get(name);
        if (fault.hangs && name === 'get') return new Promise(() => undefined);
        if (fault.hangs && name === 'getMany') return hangingMany();
        const run = (): unknown => Reflect.apply(value, target, args);
        if (failure !== undefined) return name === 'getMany' ? failingMany(failure) : Promise.reject(failure());
        return name === 'put' && fault.delay !== undefined ? fault.delay().then(run) : run();
      };
    },
  });
  return {
    volume,
    inner,
    calls,
    fail: (call, error) => void (error === undefined ? failures.delete(call) : failures.set(call, error)),
    get delay() {
      return fault.delay;
    },
    set delay(delay) {
      fault.delay = delay;
    },
    get hangs() {
      return fault.hangs;
    },
    set hangs(hangs) {
      fault.hangs = hangs;
    },
  };
}

// oxlint-disable-next-line require-yield
async function* failingMany(failure: () => Error): AsyncGenerator<readonly Uint8Array[], void, void> {
  throw failure();
}

// oxlint-disable-next-line require-yield
async function* hangingMany(): AsyncGenerator<readonly Uint8Array[], void, void> {
  await new Promise(() => undefined);
}
