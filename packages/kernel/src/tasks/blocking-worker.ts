/**
 * The code of each thread of a `BlockingPool`: imports the pool's module once, then calls its functions one at a time.
 *
 * Contract: every call is answered, with the value or with the error. An uncaught error or `process.exit` outside of a call
 * ends the thread, and the pool detects it.
 * Bound: one call at a time; the pool sends no second one. Cancellation: the pool terminates the thread.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { assert, RonError, type ErrorCode, type RonErrorInit } from '../errors.ts';

export interface Call {
  readonly fn: string;
  readonly args: readonly unknown[];
}

/** `ready`: the module is imported, and the thread may be ended from now on. */
export type Answer = { readonly value: unknown } | { readonly error: WireError } | { readonly ready: true };

/** An error as it crosses the boundary: classes and own properties do not survive the copy, so they are written out. */
export interface WireError {
  readonly name: string;
  readonly message: string;
  readonly stack: string;
  /** Of a RonError: the members that an answer is made of. */
  readonly ron: (RonErrorInit & { code: ErrorCode }) | undefined;
}

function toWire(error: unknown): WireError {
  if (!(error instanceof Error)) return toWire(new Error(String(error)));
  const { name, message, stack = '' } = error;
  return { name, message, stack, ron: error instanceof RonError ? ronPart(error) : undefined };
}

function ronPart({ code, op, retry_after_ms, details }: RonError): WireError['ron'] {
  return {
    code,
    ...(op === undefined ? {} : { op }),
    ...(retry_after_ms === undefined ? {} : { retry_after_ms }),
    ...(details === undefined ? {} : { details }),
  };
}

async function answer(functions: Record<string, unknown>, { fn, args }: Call): Promise<Answer> {
  try {
    const called = functions[fn];
    assert(typeof called === 'function', `the module of the pool exports a function ${fn}`);
    return { value: await (called as (...args: readonly unknown[]) => unknown)(...args) };
  } catch (error) {
    return { error: toWire(error) };
  }
}

const port = parentPort;
assert(port !== null, 'this file is run by a BlockingPool');
const functions = (await import((workerData as { module: string }).module)) as Record<string, unknown>;
port.postMessage({ ready: true } satisfies Answer);
port.on('message', (call: Call) => {
  void answer(functions, call).then((given) => {
    try {
      port.postMessage(given);
    } catch (error) {
      port.postMessage({ error: toWire(error) } satisfies Answer);
    }
  });
});
