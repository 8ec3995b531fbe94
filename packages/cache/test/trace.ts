/** Requests for caches: a Zipf distribution over many keys, with scans that request keys of their own once each. */

/** Deterministic, so that two policies see the same requests. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface TraceInit {
  requests: number;
  keys: number;
  /** The exponent of the distribution. */
  skew: number;
  /** A scan of so many keys after each `scan_every` requests. 0: none. */
  scan_keys: number;
  scan_every: number;
  /** Whether each scan requests the same keys again. */
  isLoop?: boolean;
}

/** Keys below `keys` are drawn, those above belong to scans. */
export function traceOf({ requests, keys, skew, scan_keys, scan_every, isLoop = false }: TraceInit): Int32Array {
  const random = randomOf(42);
  const cumulated = new Float64Array(keys);
  let sum = 0;
  for (let rank = 0; rank < keys; rank++) cumulated[rank] = sum += 1 / (rank + 1) ** skew;
  const draw = (): number => {
    const wanted = random() * sum;
    let [low, high] = [0, keys - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (cumulated[middle]! < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const trace: number[] = [];
  let scanned = keys;
  for (let request = 1; request <= requests; request++) {
    trace.push(draw());
    if (scan_keys === 0 || request % scan_every !== 0) continue;
    if (isLoop) scanned = keys;
    for (let step = 0; step < scan_keys; step++) trace.push(scanned++);
  }
  return Int32Array.from(trace);
}
