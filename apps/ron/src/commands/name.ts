/** `ron name`: publishes and shows names, and manages the keys that this node trusts for them. */
import { isNameKey } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { columns } from '../format.ts';
import { orMissing } from '../names/read-name.ts';
import { nameArg, prefixArg } from '../names/name-arg.ts';
import { nameKeys, publicKeyArg } from '../names/name-keys.ts';
import { servicesOf, type NodeServices } from '../names/node-services.ts';
import { contentOf, dateOf, expiryOf, nameJson, nameRows, recordJson } from '../names/show-name.ts';
import { verbLines, verbOf, type VerbUsage } from '../verbs.ts';

const options = {
  key: {
    type: 'string',
    value: 'KEY',
    doc: 'set, renew, rm, move: the kid or public key to sign with. Default: the one that the node trusts for the label.',
  },
  days: { type: 'string', value: 'N', doc: 'set, renew, rm: the life of the record, at most 730. Default 365.' },
  ttl: {
    type: 'string',
    value: 'S',
    doc: 'set: how long resolvers may cache the record, in seconds. Default: as before, or 60.',
  },
  within: {
    type: 'string',
    value: 'N',
    doc: 'renew without a label: the names that expire within N days. Default 30.',
  },
  yes: { type: 'boolean', doc: 'move: confirm. Required without a terminal.' },
  dir: CONNECTION_OPTIONS.dir,
  url: {
    ...CONNECTION_OPTIONS.url,
    doc: 'The URL of index, or unix:PATH of its socket; kms and storage are those of the directory. Default: RON_URL, or the service that runs in the directory.',
  },
  pin: CONNECTION_OPTIONS.pin,
  'capability-file': CONNECTION_OPTIONS['capability-file'],
} as const;

export type NameInvocation = Invocation<typeof options>;

interface Verb extends VerbUsage {
  run(invocation: NameInvocation, services: NodeServices, args: readonly string[]): Promise<void>;
}

const VERBS: Readonly<Record<string, Verb>> = {
  set: {
    args: 'LABEL ADDRESS|FILE',
    about: 'publishes a name for an address, or for a file, which is stored first; creates the key at first use',
    run: async (...call) => (await import('../names/change-name.ts')).set(...call),
  },
  get: { args: 'NAME', about: 'prints the current record of a name; LABEL@KEY for the name of another key', run: get },
  history: {
    args: 'NAME',
    about: 'prints the current and the older records, and both records of a fork',
    run: history,
  },
  ls: { args: '[PREFIX]', about: 'prints the names that this node published', run: list },
  renew: {
    args: '[LABEL]',
    about: 'publishes the same address with a new life; without a label, for all names that expire soon',
    run: async (...call) => (await import('../names/change-name.ts')).renew(...call),
  },
  rm: {
    args: 'LABEL',
    about: 'publishes that the name has no address; set continues it',
    run: async (...call) => (await import('../names/change-name.ts')).remove(...call),
  },
  move: {
    args: 'LABEL KEY',
    about: 'gives the name to another key, finally; if kms has that key, it publishes the address first',
    run: async (...call) => (await import('../names/change-name.ts')).move(...call),
  },
  trust: {
    args: '[PREFIX KEY | rm PREFIX | ls]',
    args_max: 2,
    about: 'shows or changes which key bare labels belong to; the longest prefix wins, / is the node itself',
    run: trust,
  },
  keys: { args: '', about: 'prints the keys in kms that sign names', run: listKeys },
};

const NAMES = Object.keys(VERBS);

export default command({
  name: 'name',
  usage: `name ${NAMES.join('|')} [ARGUMENTS]`,
  about: [
    'Publishes names for addresses. A record is signed by a key that never leaves kms; every reader verifies it.',
    ...verbLines(VERBS),
    'The format of records is described in docs/names.md.',
  ].join('\n'),
  options,
  args: [1, 3],
  words: NAMES,
  examples: {
    'ron name set docs/readme README.md': 'store the file and publish its address',
    'ron name set docs/readme b3:...': 'publish another address',
    'ron name get docs/readme --json': 'print the record with its signature',
    'ron get docs/readme': 'fetch the object',
    'ron name history docs/readme': 'print all records that the node has',
    'ron name renew': 'renew all names that expire within 30 days',
    'ron name trust friends/ada 3b6a27bc...': 'take the names below friends/ada from this key',
    'ron name move docs/readme 3b6a27bc... --yes': 'give the name to another key',
  },
  async run(invocation) {
    const { verb, args } = verbOf('name', VERBS, invocation.args);
    await verb.run(invocation, servicesOf(invocation, 'index'), args);
  },
});

async function get({ io }: NameInvocation, services: NodeServices, [text]: readonly string[]): Promise<void> {
  const target = nameArg(text!);
  const name = await orMissing(
    text!,
    services.index((index) => index.name(target)),
  );
  io.result(columns(nameRows(name)), nameJson(name));
}

async function history({ io }: NameInvocation, services: NodeServices, [wanted]: readonly string[]): Promise<void> {
  const target = nameArg(wanted!);
  const reading = services.index((index) => index.name(target, { history: true, expired: true }));
  const name = await orMissing(wanted!, reading);
  const records = [name, ...(name.rival === undefined ? [] : [name.rival]), ...name.history];
  for (const each of records) {
    const { seq, not_after } = each.record;
    const fork = each === name.rival ? ', contradicts the record above' : '';
    const text = `${contentOf(each.record)}  until ${dateOf(not_after)}  record ${each.hash}${fork}`;
    io.result(columns([[`seq ${seq}`, text]]), { ...recordJson(each), ...(fork !== '' && { conflict: true }) });
  }
}

async function list({ io }: NameInvocation, services: NodeServices, [wanted = '/']: readonly string[]): Promise<void> {
  const prefix = prefixArg(wanted);
  const names = await services.index((index) => Array.fromAsync(index.names({ prefix })));
  const width = Math.max(0, ...names.map(({ record }) => record.label.length));
  for (const name of names) {
    const forked = name.rival === undefined ? '' : ', forked';
    const text = `${contentOf(name.record)}  ${expiryOf(name.record)}${forked}`;
    io.result(columns([[name.record.label.padEnd(width), text]]), nameJson(name));
  }
}

async function trust({ io }: NameInvocation, services: NodeServices, args: readonly string[]): Promise<void> {
  const [first, second] = args;
  if (second === undefined) {
    if (first !== undefined && first !== 'ls') throw usage({ name: 'name' }, 'expected `name trust PREFIX KEY`');
    for (const each of await services.index((index) => index.trust())) {
      io.result(columns([[each.prefix === '' ? '/' : each.prefix, each.key]]), each);
    }
    return;
  }
  // A key has more digits than a segment may have, so it is never a prefix.
  if (first === 'rm' && !isNameKey(second)) {
    const prefix = prefixArg(second);
    await services.index((index) => index.removeTrust(prefix));
    return io.result(`the prefix ${prefix === '' ? '/' : prefix} has no key of its own any more`, {
      prefix,
      key: null,
    });
  }
  const prefix = prefixArg(first!);
  const key = await publicKeyArg(second, services);
  await services.index((index) => index.setTrust({ prefix, key }));
  return io.result(`labels below ${prefix === '' ? '/' : prefix} belong to ${key}`, { prefix, key });
}

async function listKeys({ io }: NameInvocation, services: NodeServices): Promise<void> {
  for (const { kid, key } of await nameKeys(services)) io.result(columns([[key, kid]]), { key, kid });
}
