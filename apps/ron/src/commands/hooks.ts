/** `ron hooks`: manages providers of webhooks, and shows their deliveries. */
import { command } from '../command.ts';
import type { Exit } from '../exits.ts';
import { HOOKS_OPTIONS, type HooksInvocation } from '../hooks/hooks-options.ts';
import { verbLines, verbOf, type VerbUsage } from '../verbs.ts';

interface Verb extends VerbUsage {
  run(invocation: HooksInvocation, args: readonly string[]): Promise<Exit | void>;
}

/** Sequence numbers of one command. */
const ARGS_MAX = 10_000;

const VERBS: Readonly<Record<string, Verb>> = {
  add: {
    args: 'NAME',
    about:
      'adds a provider, and prints the URL to enter there and a command that tests it (its openssl shows the secret to other users of the machine); a known provider keeps the settings whose flags are absent',
    run: async (...call) => (await import('../hooks/providers.ts')).add(...call),
  },
  list: {
    args: '',
    about: 'prints the providers with their secrets: versions, ends and uses, never the values',
    run: async (invocation) => (await import('../hooks/providers.ts')).list(invocation),
  },
  show: {
    args: 'NAME',
    about: 'prints the settings of a provider',
    run: async (...call) => (await import('../hooks/providers.ts')).show(...call),
  },
  rotate: {
    args: 'NAME',
    about: 'adds a secret; the previous one stays valid for the overlap',
    run: async (...call) => (await import('../hooks/providers.ts')).rotate(...call),
  },
  remove: {
    args: 'NAME',
    about: 'deletes a provider and its secrets; its messages stay',
    run: async (...call) => (await import('../hooks/providers.ts')).remove(...call),
  },
  test: {
    args: 'NAME',
    about: 'delivers a signed sample, which receivers recognise by the header ron-test',
    run: async (...call) => (await import('../hooks/providers.ts')).test(...call),
  },
  tail: {
    args: '[NAME]',
    about: 'prints deliveries as they happen, accepted and refused, until Ctrl-C',
    run: async (...call) => (await import('../hooks/tail.ts')).tail(...call),
  },
  dlq: {
    args: 'NAME',
    about: 'prints the dead letters of its topic',
    run: async (...call) => (await import('../hooks/dead-letters.ts')).list(...call),
  },
  replay: {
    args: 'NAME [SEQ...]',
    args_max: ARGS_MAX,
    about: 'sends dead letters of its topic again: by SEQ, the oldest --max, or --all',
    run: async (...call) => (await import('../hooks/dead-letters.ts')).replay(...call),
  },
  brownout: {
    args: '[on|off|auto]',
    about: 'prints whether the bridge sheds load and why; on and off override it for a time',
    run: async (...call) => (await import('../hooks/brownout.ts')).brownout(...call),
  },
};

export default command({
  name: 'hooks',
  usage: `hooks ${Object.keys(VERBS).join('|')} [ARGUMENTS]`,
  about: [
    'Webhooks. A signed delivery becomes a message in the topic of its provider and gets a signed receipt. A secret comes from a',
    'file, standard input or a prompt without echo, and is never printed again.',
    ...verbLines(VERBS),
    'Exit codes: 66 if the provider does not exist, 75 if interop is overloaded.',
  ].join('\n'),
  options: HOOKS_OPTIONS,
  args: [1, ARGS_MAX + 1],
  words: Object.keys(VERBS),
  examples: {
    'ron hooks add github --scheme github --generate': 'add a provider, with a new secret',
    'ron hooks add stripe --scheme stripe --secret-file stripe.secret': 'add one with the secret that Stripe shows',
    'ron hooks add ci --scheme generic --signature-header X-Signature --prefix sha256= --network 192.0.2.0/24':
      'add any HMAC scheme, from one network only',
    'ron hooks add github --rps 50': 'change one setting of a provider, keep the others and the secrets',
    'ron hooks add ci --any-network': 'accept its deliveries from everywhere again',
    'ron hooks test github': 'deliver a signed sample',
    'ron hooks tail github': 'watch its deliveries',
    'ron queue receive hooks.github --follow --ack': 'receive its messages',
    'ron hooks rotate github --generate --overlap 2h': 'replace the secret; both are valid for two hours',
    'ron hooks list --json': 'print the providers for a script',
    'ron hooks dlq github': 'print messages that no receiver could process',
    'ron hooks replay github --all': 'send them again',
    'ron hooks brownout on --for 30m --why "storage moves"': 'shed /put, and keep webhooks in the spool',
    'ron hooks brownout auto': 'let interop decide again',
    'ron hooks remove github': 'delete it',
  },
  async run(invocation) {
    const { verb, args } = verbOf('hooks', VERBS, invocation.args);
    return await verb.run(invocation, args);
  },
});
