/**
 * Verifies the bytes that remain from an earlier, interrupted download.
 *
 * Contract: returns a number of leading bytes, a multiple of the group size, that are proven against the address. It costs one
 * small request and one pass over these bytes: a slice of the first missing group contains the subtree values of everything
 * before it, and the bytes must hash to them.
 * Bound: one group, and a value for each level of the tree. Cancellation: by the signal.
 */
import type { Address } from '@ron/proto';
import { parentValue, subtreeValue, type Subtree } from '@ron/simd';
import { inPieces, type ReplayableBody } from './body.ts';
import { GROUP_BYTES } from './object-hasher.ts';
import type { Transport } from './transport.ts';
import { slice } from './verified-read.ts';

export async function provenPrefix(
  transport: Transport,
  address: Address,
  kept: ReplayableBody,
  signal: AbortSignal | undefined,
): Promise<number> {
  if (kept.size < GROUP_BYTES) return 0;
  const offset = kept.size - (kept.size % GROUP_BYTES);
  const known = await transport.call('get', (tried) => valuesBefore(transport, address, offset, tried), { signal });
  if (known.subtrees.length === 0) return 0;
  return await countProven(kept, known, transport.signalFor(signal));
}

interface Known {
  readonly group_bytes: number;
  /** Side by side from the first group on. */
  readonly subtrees: readonly Subtree[];
}

async function valuesBefore(
  transport: Transport,
  address: Address,
  offset: number,
  signal: AbortSignal,
): Promise<Known> {
  const subtrees: Subtree[] = [];
  let group_bytes = GROUP_BYTES;
  const onSkipped = (subtree: Subtree, stated_bytes: number): void => {
    group_bytes = stated_bytes;
    if ((subtree.first + subtree.count) * stated_bytes <= offset) subtrees.push(subtree);
  };
  for await (const _ of slice(transport, address, { offset, length: 1, signal, onSkipped })) {
    // Only the values that `onSkipped` receives matter.
  }
  return { group_bytes, subtrees: subtrees.toSorted((a, b) => a.first - b.first) };
}

async function countProven(kept: ReplayableBody, known: Known, signal: AbortSignal): Promise<number> {
  const { group_bytes, subtrees } = known;
  const groups = inPieces(kept.read(0), group_bytes);
  let proven = 0;
  try {
    for (const { first, count, value } of subtrees) {
      signal.throwIfAborted();
      const found = await valueOf(groups, first, count, group_bytes);
      if (found === undefined || !isSame(found, value)) return proven * group_bytes;
      proven = first + count;
    }
  } finally {
    await groups.return();
  }
  return proven * group_bytes;
}

/** The value of the next `count` groups, which are a complete subtree: a power of two. */
async function valueOf(
  groups: AsyncGenerator<Uint8Array, void, void>,
  first: number,
  count: number,
  group_bytes: number,
): Promise<Uint8Array | undefined> {
  const values: Uint8Array[] = [];
  for (let index = 1; index <= count; index++) {
    const next = await groups.next();
    if (next.done === true || next.value.length < group_bytes) return undefined;
    let value: Uint8Array = subtreeValue(next.value, (first + index - 1) * group_bytes);
    for (let level = index; level % 2 === 0; level /= 2) value = parentValue(values.pop()!, value, false);
    values.push(value);
  }
  return values.length === 1 ? values[0] : undefined;
}

function isSame(left: Uint8Array, right: Uint8Array): boolean {
  return left.every((byte, at) => byte === right[at]);
}
