/**
 * Abort signals are shared objects that the kernel does not announce. While footprints are recorded, this does: a use of
 * a signal reads it, an abort writes it. A signal made by `AbortSignal.any` stands for those it was made from.
 */
import type { Footprint } from './footprint.ts';

const READS = ['aborted', 'reason', 'throwIfAborted', 'addEventListener', 'removeEventListener'] as const;

/** Announces signals to `recorder()` until the returned function is called. */
export function watchSignals(recorder: () => Footprint | undefined): () => void {
  const sources = new WeakMap<AbortSignal, readonly AbortSignal[]>();
  const read = (signal: AbortSignal): void => {
    for (const source of sources.get(signal) ?? []) read(source);
    recorder()?.reads(signal);
  };
  const undo = READS.map((name) => intercept(AbortSignal.prototype, name, read));
  undo.push(intercept(AbortController.prototype, 'abort', ({ signal }) => recorder()?.writes(signal)));

  const any = Object.getOwnPropertyDescriptor(AbortSignal, 'any') as PropertyDescriptor;
  AbortSignal.any = (signals) => {
    const combined = (any.value as typeof AbortSignal.any).call(AbortSignal, signals);
    sources.set(combined, [...signals]);
    return combined;
  };
  return () => {
    Object.defineProperty(AbortSignal, 'any', any);
    for (const restore of undo) restore();
  };
}

/** Calls `before` with the receiver whenever `prototype[name]` is read. */
function intercept<T extends object>(prototype: T, name: string, before: (receiver: T) => void): () => void {
  const own = Object.getOwnPropertyDescriptor(prototype, name);
  Object.defineProperty(prototype, name, {
    configurable: true,
    enumerable: true,
    get(this: T): unknown {
      before(this);
      return own === undefined ? Reflect.get(Object.getPrototypeOf(prototype), name, this) : valueOf(own, this);
    },
  });
  return () => {
    if (own === undefined) Reflect.deleteProperty(prototype, name);
    else Object.defineProperty(prototype, name, own);
  };
}

function valueOf(own: PropertyDescriptor, receiver: object): unknown {
  return own.get === undefined ? own.value : own.get.call(receiver);
}
