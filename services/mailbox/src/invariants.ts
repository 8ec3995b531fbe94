/**
 * The promises of mailbox. `docs/invariants.md` lists where each one is enforced and proven; the tags in the code carry
 * the keys of this table. `npm run check` fails when a promise has no enforcement or no proof.
 */
export const invariants = {
  'I-1': 'A send is answered after its sync, and its message is invisible to receivers before.',
  'I-2':
    'Within the window, an idempotency key has one message: a repeated send gets its id, even after a restart and while the first send is syncing.',
  'I-3': 'A message has one lease: no other receiver gets it before its visibility ends.',
  'I-4': 'An ack is answered after its sync, and its message is never delivered again.',
  'I-5': 'An ack, nack or extend that is not for the latest delivery changes nothing.',
  'I-6': 'Visible messages are delivered in the order of their sends; of one key, one message at a time and in order.',
  'I-7': 'A message that fails is delivered again after a backoff, and becomes a dead letter after max_deliveries.',
  'I-8':
    'No message disappears without a counter and a log line: for each topic, sent = acked + ready + delayed + leased + dead + gone.',
  'I-9': 'Leases and delivery counts survive a restart; a clock jump costs at most one visibility.',
  'I-10': 'A full disk refuses sends; acks, nacks and leases go on.',
  'I-11': 'Every queue, table and answer has a limit, and each topic its own.',
  'I-12': 'A drain releases long polls at once; a message is never given to a receiver that left.',
} as const;
