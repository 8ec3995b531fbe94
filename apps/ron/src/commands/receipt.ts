/** `ron receipt`: fetches signed receipts of webhooks, and verifies them offline. */
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { verbLines, verbOf, type VerbUsage } from '../verbs.ts';

const options = {
  output: { type: 'string', short: 'o', value: 'FILE', doc: 'get: the file to write. Default: standard output.' },
  wait: { type: 'boolean', doc: 'get: wait until kms has signed the receipt. Default: exit with 75 if it has not.' },
  key: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    doc: 'verify: the public keys that must have signed: PEM, JWK, or a trust file, of which one line is enough, as `ron keys export` prints them. Repeatable.',
  },
  body: { type: 'string', value: 'FILE', doc: 'verify: the body of the webhook, which must be the received one.' },
  ...CONNECTION_OPTIONS,
} as const;

export type ReceiptInvocation = Invocation<typeof options>;

interface Verb extends VerbUsage {
  run(invocation: ReceiptInvocation, argument: string): Promise<void>;
}

const VERBS: Readonly<Record<string, Verb>> = {
  get: {
    args: 'ID',
    about: 'prints a signed receipt; its id is in the answer to the webhook and in the headers of its message',
    run: async (...call) => (await import('../receipt/get-receipt.ts')).getReceipt(...call),
  },
  verify: {
    args: 'FILE',
    about:
      'verifies a receipt with the given keys, without a network; a key in the file is never trusted; the file must have the spelling that interop sent, apart from white space',
    run: async (...call) => (await import('../receipt/verify-receipt.ts')).verifyReceipt(...call),
  },
};

export default command({
  name: 'receipt',
  usage: `receipt ${Object.keys(VERBS).join('|')} [ARGUMENTS]`,
  about: [
    'Receipts of webhooks: the proof that this node accepted a body at a time. kms signs them in trees of up to 128.',
    ...verbLines(VERBS),
    'Exit codes of verify: 65 if the receipt, the body or a signature was changed, or another key signed; of get: 66 if there is',
    'no such receipt, 75 if kms has not signed it. log_index and log_proof are not checked: no signature of the receipt covers them.',
  ].join('\n'),
  options,
  args: [2, 2],
  words: Object.keys(VERBS),
  examples: {
    'ron receipt get 01JQZ3QW5T0000000000000001 -o receipt.json --wait': 'fetch a receipt',
    'ron keys export interop/receipts/hybrid/... -o receipts.pem': 'export the key of the node, once',
    'ron receipt verify receipt.json --key receipts.pem --body body.json': 'verify the receipt and the body, offline',
  },
  async run(invocation) {
    const { verb, args } = verbOf('receipt', VERBS, invocation.args);
    await verb.run(invocation, args[0]!);
  },
});
