/**
 * The rules of the concurrency model of kms. `docs/invariants.md` lists where each rule is enforced and proven; the tags
 * in the code carry the keys of this table. `npm run check` fails when a rule has no enforcement or no proof.
 */
export const invariants = {
  'I-1':
    'No lock is held across an await: readers load a snapshot, and state changes within one turn of the event loop; appends to the log queue in a bounded `Mutex`.',
  'I-2':
    'The version head of a key, the nonce counter and the attestation cache have one writer each; readers use snapshots.',
  'I-3': 'Every channel has a fixed capacity, and every overflow has a declared policy and a metric.',
  'I-4': 'Every request, backend call and file operation has a deadline.',
  'I-5': 'Every wait ends when its signal aborts, and a cancelled wait loses nothing.',
  'I-6':
    'A shutdown stops intake, drains within a deadline, writes the last checkpoint, aborts the rest and counts it.',
  'I-7': 'No call blocks the event loop: PKCS#11, signatures and files run in threads.',
  'I-8': 'Every task has an owner that counts it and waits for it at shutdown.',
  'I-9': 'Overload is refused with `busy` (429) at once; no queue grows instead.',
  'I-10': 'Framing is strict: bodies, headers and JSON have hard caps, and bytes may arrive split anywhere.',
  'I-11': 'Resources are closed by an asynchronous `close`; nothing blocks in a destructor.',
} as const;
