/**
 * The rules of interop's concurrency model: the bullets of section 1 of its specification, in order. `docs/invariants.md` lists
 * where each rule is enforced and proven; the tags in the code carry the keys of this table. `npm run check` fails when a rule
 * has no enforcement or no proof.
 */
export const invariants = {
  'I-1': 'No lock is held across an await: readers load a snapshot, and a `Cell` refuses a callback that waits.',
  'I-2':
    'Providers, receipts and the brownout mode have one writer each, and the spool changes in synchronous steps; readers use snapshots.',
  'I-3': 'Every channel has a fixed capacity, and every overflow has a declared policy and a metric.',
  'I-4': 'All I/O and every call to another service has a deadline; a passed deadline is a typed `timeout`.',
  'I-5': 'Every wait ends when its signal aborts, and a cancelled wait loses nothing.',
  'I-6': 'A shutdown stops intake, drains within `drain_deadline`, aborts the rest and counts it.',
  'I-7': 'No call blocks the event loop: files and native calls are asynchronous.',
  'I-8': 'Every task has an owner that counts it and waits for it at shutdown.',
  'I-9': 'Overload is refused with `busy` (429) or `backpressure` (503) and counted; no queue grows instead.',
  'I-10': 'Framing is strict: lengths, encodings and decoded sizes are checked, at any split of the bytes.',
  'I-11': 'Closing is an explicit asynchronous call; no finalizer does work.',
} as const;
