/** `ron queue`: sends, receives and acknowledges messages, and manages topics and dead letters. */
import { command } from '../command.ts';
import { QUEUE_OPTIONS, type QueueInvocation } from '../queue/queue-options.ts';
import { verbLines, verbOf, type VerbUsage } from '../verbs.ts';

interface Verb extends VerbUsage {
  run(invocation: QueueInvocation, args: readonly string[]): Promise<void>;
}

/** Files, tokens or sequence numbers of one command. */
const ARGS_MAX = 10_000;

const VERBS: Readonly<Record<string, Verb>> = {
  send: {
    args: 'TOPIC [FILE...]',
    args_max: ARGS_MAX,
    about: 'stores a message for each file, for --text or for each line; the first message creates the topic',
    run: async (...call) => (await import('../queue/send.ts')).send(...call),
  },
  receive: {
    args: 'TOPIC',
    about: 'leases messages and prints them with the tokens that acknowledge them',
    run: async (...call) => (await import('../queue/receive.ts')).receive(...call),
  },
  ack: {
    args: 'TOPIC TOKEN...',
    args_max: ARGS_MAX,
    about:
      'acknowledges messages: they are never delivered again; - reads tokens or the JSON of receive from standard input',
    run: async (...call) => (await import('../queue/settle.ts')).ack(...call),
  },
  nack: {
    args: 'TOPIC TOKEN...',
    args_max: ARGS_MAX,
    about: 'returns messages: they are delivered again after a backoff or --delay, or become dead letters with --dead',
    run: async (...call) => (await import('../queue/settle.ts')).nack(...call),
  },
  extend: {
    args: 'TOPIC TOKEN...',
    args_max: ARGS_MAX,
    about: 'restarts the visibility timeout of leased messages',
    run: async (...call) => (await import('../queue/settle.ts')).extend(...call),
  },
  peek: {
    args: 'TOPIC',
    about: 'prints visible messages without a lease',
    run: async (...call) => (await import('../queue/peek.ts')).peek(...call),
  },
  stats: {
    args: '[TOPIC]',
    about: 'prints the counts of all topics, or the ledger and the limits of one',
    run: async (...call) => (await import('../queue/stats.ts')).stats(...call),
  },
  policy: {
    args: 'TOPIC',
    about: 'prints the limits of a topic; --set changes them, and creates the topic',
    run: async (...call) => (await import('../queue/policy.ts')).policy(...call),
  },
  dlq: {
    args: 'TOPIC',
    about: 'prints the dead letters with reason, attempts and last error',
    run: async (...call) => (await import('../queue/dead-letters.ts')).list(...call),
  },
  replay: {
    args: 'TOPIC [SEQ...]',
    args_max: ARGS_MAX,
    about: 'sends dead letters again, as new messages: by SEQ, the oldest --max, or --all',
    run: async (...call) => (await import('../queue/dead-letters.ts')).replay(...call),
  },
  delete: {
    args: 'TOPIC [SEQ...]',
    args_max: ARGS_MAX,
    about: 'deletes dead letters: by SEQ, the oldest --max, or --all',
    run: async (...call) => (await import('../queue/dead-letters.ts')).remove(...call),
  },
  prove: {
    args: '[DIR]',
    about:
      'reads every record from disk and recomputes the ledgers; DIR is the data directory of a stopped mailbox, or a copy',
    run: async (...call) => (await import('../queue/prove.ts')).prove(...call),
  },
  accept: {
    args: '',
    about: 'shows why a ledger is broken, and lets mailbox continue once you confirm',
    run: async (invocation) => (await import('../queue/accept.ts')).accept(invocation),
  },
};

export default command({
  name: 'queue',
  usage: `queue ${Object.keys(VERBS).join('|')} [ARGUMENTS]`,
  about: [
    'Durable queues. A message is stored before its send is answered, and delivered until a receiver acknowledges it.',
    'A receiver may get a message twice: make its work idempotent.',
    ...verbLines(VERBS),
    'Exit codes: 1 if a token is stale or an idempotency key belongs to another body, 65 if a ledger is broken, 66 if the topic',
    'does not exist, 75 if a topic is full.',
  ].join('\n'),
  options: QUEUE_OPTIONS,
  args: [1, ARGS_MAX + 1],
  words: Object.keys(VERBS),
  examples: {
    'ron queue send orders order.json': 'send a file',
    'ron queue send orders --text hello --key customer-7': 'send text; messages of one key stay in order',
    'jq -c .[] all.json | ron queue send orders - --lines --idempotency-key import-7': 'send each line, safe to repeat',
    'ron queue receive orders --wait 20s': 'print a message and its token',
    'ron queue ack orders TOKEN': 'acknowledge it',
    'ron queue receive orders --follow --ack --lines': 'print all payloads as they arrive',
    'ron queue receive orders --max 100 --out inbox --ack': 'store payloads as files, then acknowledge them',
    'ron queue nack orders TOKEN --error "no stock"': 'let it be delivered again later',
    'ron queue stats orders': 'print the ledger: sent = acked + ready + delayed + leased + dead + gone',
    'ron queue dlq orders': 'print the dead letters',
    'ron queue replay orders --all': 'send all dead letters again',
    'ron queue policy orders --set max_deliveries=5': 'change a limit of the topic',
    'ron queue prove': 'verify every record on disk',
    'ron queue accept --reason "disk replaced"': 'continue after a loss',
  },
  async run(invocation) {
    const { verb, args } = verbOf('queue', VERBS, invocation.args);
    await verb.run(invocation, args);
  },
});
