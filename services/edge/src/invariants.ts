/**
 * The rules of edge's concurrency model. `docs/invariants.md` lists where each rule is enforced and proven; the tags
 * in the code carry the keys of this table. `npm run check` fails when a rule has no enforcement or no proof.
 */
export const invariants = {
  'I-1': 'No lock is held across an await: readers load a snapshot, and a `Cell` refuses a callback that waits.',
  'I-2': 'Cached bytes, notes, packs and readiness have one writer each; readers use snapshots.',
  'I-3': 'Every channel has a fixed capacity, and every overflow has a declared policy and a metric.',
  'I-4': 'All I/O has a deadline: 5 s for a request, 5 s for a fill with all its tries, 60 s for an idle connection.',
  'I-5': 'Every wait ends when its signal aborts, and a cancelled wait loses nothing.',
  'I-6': 'A shutdown stops intake, drains within 3 s, aborts the rest and counts it.',
  'I-7': 'No call blocks the event loop: MBTiles, hashes of packs and files run in threads.',
  'I-8': 'Every task has an owner that counts it and waits for it at shutdown.',
  'I-9': 'Overload is refused with `busy` (429) and counted; no queue grows instead.',
  'I-10': 'Framing is strict: ranges, conditions, lengths and decoded sizes are checked.',
  'I-11': 'Closing is an explicit asynchronous call; no finalizer does work.',
} as const;
