/**
 * The minimum version of a key: one for signatures, one for data.
 *
 * Contract: a raise applies to `verify` at once, because it withdraws old signatures. It applies to `unwrap` and `derive`
 * after a waiting period, because data would become unreadable. A later raise neither shortens nor extends the wait of an
 * earlier one. During its wait a raise can be lowered again, down to the version in force for data.
 * Time is the wall clock: a clock that runs behind extends the wait. A clock that runs ahead ends the wait early by as much,
 * and the wait resumes when the clock is corrected, because nothing is destroyed.
 * Bound: `RAISES_MAX` waiting raises. Overflow: a further raise joins the last one and restarts its wait.
 */
import { RonError } from '@ron/kernel';
import { headOf, type KeyFields, type KeyRecord, type Raise } from './key-record.ts';

export const RAISES_MAX = 16;

/** The oldest version that unwraps and derives. */
export function minDataVersion({ min_version, raising }: KeyFields, now_ms: number): number {
  if (raising === undefined) return min_version;
  return raising.steps.findLast((step) => step.effective_ms <= now_ms)?.min_version ?? raising.from;
}

/** When the oldest version that unwraps and derives rises next; undefined if no raise is waiting. */
export function effectiveAt_ms({ raising }: KeyFields, now_ms: number): number | undefined {
  return raising?.steps.find((step) => step.effective_ms > now_ms)?.effective_ms;
}

/** The record with another minimum. Throws `conflict` if the value is not allowed now. */
export function withMinVersion(record: KeyRecord, min_version: number, now_ms: number, wait_ms: number): KeyRecord {
  const [least, head] = [minDataVersion(record, now_ms), headOf(record).version];
  if (min_version < least || min_version > head) {
    throw new RonError('conflict', `min_version must be between ${least} and ${head}`);
  }
  if (min_version === record.min_version) return record;
  const { raising = { from: record.min_version, steps: [] }, ...rest } = record;
  const { from, steps } =
    min_version > record.min_version
      ? raised(raising, { min_version, effective_ms: now_ms + wait_ms }, now_ms)
      : { from: raising.from, steps: lowered(raising, min_version) };
  return { ...rest, min_version, ...(steps.length > 0 && { raising: { from, steps } }) };
}

type Raising = NonNullable<KeyRecord['raising']>;

function raised({ from, steps }: Raising, raise: Raise, now_ms: number): Raising {
  const last_ms = steps.at(-1)?.effective_ms ?? 0;
  // The clock may have been set back since the last raise: an older version never outlives a newer one.
  const step = { ...raise, effective_ms: Math.max(raise.effective_ms, last_ms) };
  if (steps.length < RAISES_MAX) return { from, steps: [...steps, step] };
  const inForce = steps.findLast(({ effective_ms }) => effective_ms <= now_ms);
  if (inForce === undefined) return { from, steps: [...steps.slice(0, -1), step] };
  const waiting = steps.filter(({ effective_ms }) => effective_ms > now_ms);
  return { from: inForce.min_version, steps: [...waiting, step] };
}

/** Versions below the new minimum keep their times. */
function lowered({ from, steps }: Raising, min_version: number): readonly Raise[] {
  if (min_version === from) return [];
  const at = steps.findIndex((step) => step.min_version >= min_version);
  return steps.slice(0, at + 1).with(at, { ...steps[at]!, min_version });
}
