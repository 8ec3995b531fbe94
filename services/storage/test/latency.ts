/** Percentiles of latencies that were measured under load. */

export interface Timing {
  readonly at_ms: number;
  readonly took_ms: number;
}

export const percentile = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? NaN;

/** The median over half seconds of the 95th percentile in each: a pause of the machine affects one of many. */
export function p95_ms(timings: readonly Timing[], from_ms: number, to_ms: number): number {
  const slices = new Map<number, number[]>();
  for (const { at_ms, took_ms } of timings) {
    if (at_ms < from_ms || at_ms >= to_ms) continue;
    const slice = Math.floor((at_ms - from_ms) / 500);
    slices.set(slice, [...(slices.get(slice) ?? []), took_ms]);
  }
  return percentile(
    [...slices.values()].map((slice) => percentile(slice, 0.95)),
    0.5,
  );
}
