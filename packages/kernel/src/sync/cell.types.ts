/**
 * Callbacks of a Cell that the compiler must refuse and accept. Checked by `tsc`, never run: a refusal that is missing
 * makes its `@ts-expect-error` an error.
 */
// The linter refuses the same callbacks as the compiler.
/* oxlint-disable ron/no-await-in-guard, typescript/no-floating-promises */
import type { Cell } from './cell.ts';

export async function refused(cell: Cell<{ count: number }>, delay: Promise<void>, maybe: boolean): Promise<void> {
  // [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1]
  // @ts-expect-error an async callback
  cell.withSync(async (state) => {
    await delay;
    state.count += 1;
  });
  // @ts-expect-error an async callback with a result
  cell.withSync(async (state) => state.count);
  // @ts-expect-error a promise
  cell.withSync(() => delay);
  // @ts-expect-error a promise in a block body
  cell.withSync((state) => {
    state.count += 1;
    return delay;
  });
  // @ts-expect-error a PromiseLike
  cell.withSync((): PromiseLike<void> => delay);
  // @ts-expect-error a union of which one part is a promise
  cell.withSync((state) => (maybe ? delay : state.count));
  // @ts-expect-error a promise or nothing
  cell.withSync(() => (maybe ? delay : undefined));
  // @ts-expect-error a subclass of Promise
  cell.withSync((): Deferred<number> => new Deferred<number>(() => {}));
  // @ts-expect-error any may be a promise
  cell.withSync((state) => JSON.parse(String(state.count)));
  // @ts-expect-error an async function by name
  cell.withSync(work);
  // @ts-expect-error a promise under an explicit result type
  cell.withSync<Promise<void>>(() => delay);
  await delay;
}

export function accepted(cell: Cell<{ count: number; names: string[] }>): readonly unknown[] {
  const count: number = cell.withSync((state) => state.count);
  const nothing: void = cell.withSync((state) => {
    state.count += 1;
  });
  const maybe: string | undefined = cell.withSync((state) => state.names[0]);
  const fresh: { copy: string[] } = cell.withSync((state) => ({ copy: [...state.names] }));
  const unknown: unknown = cell.withSync((state): unknown => state.names);
  const literal: 'a' | 'b' = cell.withSync((state) => (state.count > 0 ? 'a' : 'b'));
  const explicit: number = cell.withSync<number>((state) => state.count);
  // @ts-expect-error the result keeps its type
  const wrong: string = cell.withSync((state) => state.count);
  return [count, nothing, maybe, fresh, unknown, literal, explicit, wrong];
}

class Deferred<T> extends Promise<T> {}

async function work(state: { count: number }): Promise<void> {
  state.count += 1;
}
