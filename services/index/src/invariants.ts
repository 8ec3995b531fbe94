/**
 * The rules of index's concurrency model. `docs/invariants.md` lists where each rule is enforced and proven; the tags
 * in the code carry the keys of this table. `npm run check` fails when a rule has no enforcement or no proof.
 */
export const invariants = {
  'I-1': 'No lock is held across an await: readers load a snapshot, and a `Cell` refuses a callback that waits.',
  'I-2': 'The cache, the breaker table and the name log have one writer each; other code calls methods of the owner.',
  'I-3': 'Every channel has a fixed capacity, and every overflow has a declared policy and a metric.',
  'I-4': 'A request has one budget from its start to its answer; lookups, hedges and ranking share it.',
  'I-5': 'Every wait ends when its signal aborts, and a cancelled wait loses nothing.',
  'I-6': 'A shutdown stops intake, drains within a deadline, aborts the rest and counts it; the DHT closes last.',
  'I-7': 'No call blocks the event loop: the database runs in threads, files in the thread pool.',
  'I-8': 'Every task has an owner that counts it and waits for it at shutdown.',
  'I-9': 'Overload is refused with `busy` (429) at once; no queue grows instead.',
  'I-10': 'Framing is strict: bodies up to 1 MiB, at most 10 decoded bytes per byte, and no unknown JSON member.',
  'I-11': 'Admin routes and lists check the capability before any work is queued.',
  'I-12': 'In amnesia mode nothing is written to disk, and expired state is purged on schedule.',
  'I-13': 'Health, readiness, metrics and version are answered without a queue, even under full load.',
  'I-14': 'Connections, and optionally the request rate, are limited per address.',
} as const;
