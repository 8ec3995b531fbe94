/**
 * The rules of storage's concurrency model. `docs/invariants.md` lists where each rule is enforced and proven; the tags
 * in the code carry the keys of this table. `npm run check` fails when a rule has no enforcement or no proof.
 */
export const invariants = {
  'I-1':
    'No lock is held across an await: state changes within one turn of the event loop; operations that await and must not interleave queue in a bounded `Mutex`.',
  'I-2': 'Each connection has one writer: an answer begins only after the answer before it is out.',
  'I-3': 'Every channel has a fixed capacity, and every overflow has a declared policy and a metric.',
  'I-4': 'Every read, write, connect and call to another service has a deadline and fails with a typed error.',
  'I-5': 'Every long wait ends when its signal aborts, and a cancelled wait loses nothing.',
  'I-6': 'A shutdown stops intake, drains within a deadline, aborts the rest, and counts both.',
  'I-7': 'No call blocks the event loop: files, scans and heavy computations run in threads.',
  'I-8': 'Every task has an owner that counts it and waits for it at shutdown.',
  'I-9': 'Overload is refused with `busy` at once; no queue grows instead.',
  'I-10': 'Framing is strict: bodies, headers and chunks have hard caps, and bytes may arrive split anywhere.',
  'I-11': 'Resources are closed by an asynchronous `close`; nothing is written by a destructor.',
} as const;
