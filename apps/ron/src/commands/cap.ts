/** `ron cap`: what capabilities say, narrower ones made from them, and, with passport, new and revoked ones. */
import { PassportClient } from '@ron/client';
import { parseDuration_ms } from '@ron/config/units';
import { isService, type TokenVerdict } from '@ron/proto';
import { usage } from '../args.ts';
import { readCapabilities, type Capabilities } from '../capability-file.ts';
import { command, REACH_OPTIONS, type Invocation } from '../command.ts';
import { CliError } from '../exits.ts';
import { columns } from '../format.ts';
import { homeOf, runningUrl } from '../home.ts';
import { writeSecret } from '../secret-file.ts';
import { withClient } from '../service-client.ts';

const { dir, 'capability-file': capabilityFile } = REACH_OPTIONS;
const options = {
  audience: {
    type: 'string',
    value: 'SERVICE',
    doc: 'Which capability of the file; issue: for which service. Default: the only one, or storage.',
  },
  scopes: { type: 'string', value: 'A,B', doc: 'issue: what it allows: storage:get,storage:put.' },
  ttl: { type: 'string', value: 'DURATION', doc: 'issue: how long it is good, 1h or 7d. Default and limit: passport.' },
  subject: { type: 'string', value: 'NAME', doc: 'issue: to whom, for revocation. Default: a name of its own.' },
  all: { type: 'boolean', doc: 'revoke: all capabilities issued until now.' },
  output: {
    type: 'string',
    short: 'o',
    value: 'FILE',
    doc: 'attenuate, issue: write the token to this file, mode 0600, instead of printing it.',
  },
  dir,
  url: {
    ...REACH_OPTIONS.url,
    doc: 'issue, revoke: where passport is. Default: RON_URL, or what runs in the directory.',
  },
  'capability-file': capabilityFile,
} as const;

type CapInvocation = Invocation<typeof options>;

export default command({
  name: 'cap',
  usage: 'cap show | cap attenuate CAVEAT... | cap issue --scopes A,B [CAVEAT...] | cap revoke SUBJECT|--all',
  about:
    'show prints what a capability says, without the secret, and whether it is good if passport runs. attenuate makes a\n' +
    'narrower one and prints it: it is a secret, treat it as one. Narrowing needs no key and no service. issue has passport\n' +
    'make a new one; revoke refuses everything that was issued to a subject until now, within two seconds. Caveats are\n' +
    'listed in packages/auth/README.md; those that are most used: "scopes in storage:get", "expires < UNIX_MS",\n' +
    '"address ^= b3:00", "bytes <= 1048576", "rate <= 10/s".',
  options,
  args: [1, 32],
  words: ['show', 'attenuate', 'issue', 'revoke'],
  examples: {
    'ron cap show': 'the rights of root.cap',
    'ron cap attenuate "scopes in storage:get" -o reader.cap': 'a capability that can only read',
    'ron put x --capability-file reader.cap': 'refused: it can only read',
    'ron cap issue --scopes storage:put --ttl 7d --subject alice -o alice.cap': 'one for alice',
    'ron cap revoke alice': 'revokes the capabilities of alice',
    'ron cap revoke --all': 'revokes all capabilities; `ron up` renews its own within a minute',
  },
  async run(invocation) {
    const [verb, ...rest] = invocation.args;
    if (verb === 'show' && rest.length === 0) return await show(invocation);
    if (verb === 'attenuate' && rest.length > 0) return await narrow(invocation, rest);
    if (verb === 'issue') return await issue(invocation, rest);
    const isForAll = invocation.values.all === true;
    if (verb === 'revoke' && rest.length === (isForAll ? 0 : 1)) return await revoke(invocation, rest[0]);
    const words = { attenuate: 'which caveats?', revoke: 'whose? One subject, or --all' }[verb ?? ''];
    throw usage({ name: 'cap' }, words ?? 'it is `cap show`, `cap attenuate`, `cap issue` or `cap revoke`');
  },
});

async function show(invocation: CapInvocation): Promise<void> {
  const { values, io } = invocation;
  const { inspectToken } = await import('@ron/auth');
  for (const token of (await tokens(values, io)).values()) {
    const { audience, subject, scopes, expires_ms, texts, capability_id, problem } = inspectToken(token);
    const expires = new Date(expires_ms).toISOString();
    const verdict = await verdictOf(invocation, token);
    const state = verdict === undefined ? undefined : verdict.ok ? 'good' : `refused: ${verdict.reason}`;
    // The first three caveats are audience, expiry and scopes; what follows narrows further.
    const rows: [string, string][] = [
      ['audience', audience],
      ['scopes', scopes.join(' ')],
      ['expires', expires],
      ['subject', subject],
      ['id', capability_id],
      ...texts.slice(3).map((text): [string, string] => ['caveat', text]),
      ...(problem === undefined ? [] : [['refused', problem] satisfies [string, string]]),
      ...(state === undefined ? [] : [['state', state] satisfies [string, string]]),
    ];
    const facts = { audience, scopes, expires, subject, id: capability_id, caveats: texts, problem };
    io.result(columns(rows), { ...facts, ...(verdict && { good: verdict.ok, reason: verdict.reason }) });
  }
}

/** What the passport of this node says about a token; undefined when none runs here, or when it does not say. */
async function verdictOf({ values, io, signal }: CapInvocation, token: string): Promise<TokenVerdict | undefined> {
  const home = homeOf(values, io);
  const url = await runningUrl(home, 'passport');
  if (url === undefined) return undefined;
  // The request is authorized by the node's own capability, and the one that is shown is sent to passport only.
  const own = { ...values, url, 'capability-file': home.capability };
  const ask = (client: PassportClient): Promise<TokenVerdict> => client.verify({ token }, signal);
  try {
    return await withClient('passport', (init) => new PassportClient(init), own, io, signal, ask);
  } catch (error) {
    signal.throwIfAborted();
    io.note(`whether it is good is not known: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
}

async function issue({ values, io, signal }: CapInvocation, caveats: readonly string[]): Promise<void> {
  const { scopes, ttl, subject, audience = 'storage' } = values;
  if (scopes === undefined) throw usage({ name: 'cap' }, '--scopes is needed: what shall it allow?');
  const ttl_ms = ttl === undefined ? undefined : parseDuration_ms(ttl);
  if (ttl !== undefined && ttl_ms === undefined) throw usage({ name: 'cap' }, `--ttl is like 1h or 7d, not ${ttl}`);
  const wanted = { audience, scopes: scopes.split(','), subject, ttl_ms, caveats };
  const issued = await withClient(
    'passport',
    (init) => new PassportClient(init),
    values,
    io,
    signal,
    (client) => client.issue(wanted, signal),
  );
  const { token, ...facts } = issued;
  if (values.output === undefined) return io.result(token, issued);
  await writeSecret(values.output, `${token}\n`);
  return io.result(`issued to ${issued.subject}`, { ...facts, file: values.output });
}

/** Without a subject: of all subjects. */
async function revoke({ values, io, signal }: CapInvocation, subject: string | undefined): Promise<void> {
  const whose = subject === undefined ? ({ all: true } as const) : { subject };
  const revoked = await withClient(
    'passport',
    (init) => new PassportClient(init),
    values,
    io,
    signal,
    (client) => client.revoke(whose, signal),
  );
  const since = new Date(revoked.epoch).toISOString();
  return io.result(
    `Revoked ${subject === undefined ? 'all' : `${subject}'s`} capabilities issued before ${since}`,
    revoked,
  );
}

async function narrow({ values, io }: CapInvocation, caveats: readonly string[]): Promise<void> {
  const { attenuate } = await import('@ron/auth');
  const found = await tokens(values, io);
  if (values.audience === undefined && found.size > 1 && !found.has('storage')) {
    throw usage({ name: 'cap' }, `--audience is needed: the file holds ${[...found.keys()].join(', ')}`);
  }
  const token = found.get(values.audience ?? 'storage') ?? [...found.values()][0]!;
  const narrowed = attenuate(token, caveats);
  if (values.output === undefined) return io.result(narrowed, { token: narrowed });
  await writeSecret(values.output, `${narrowed}\n`);
  return io.result('', { file: values.output });
}

/** By audience; a bare token under the empty name. */
async function tokens(values: CapInvocation['values'], io: CapInvocation['io']): Promise<Map<string, string>> {
  const path = values['capability-file'] ?? (io.env['RON_CAPABILITY_FILE'] || homeOf(values, io).capability);
  const found = await readCapabilities(path);
  if (found === undefined) {
    throw new CliError(
      'no_input',
      `there is no capability at ${path}: \`ron up\` makes one, or name one with --capability-file`,
    );
  }
  if (typeof found === 'string') return new Map([['', found]]);
  const wanted = values.audience;
  if (wanted !== undefined && !isService(wanted))
    throw usage({ name: 'cap' }, `${JSON.stringify(wanted)} is no service`);
  const entries = Object.entries(found as Required<Capabilities>).filter(
    ([name]) => wanted === undefined || name === wanted,
  );
  if (entries.length === 0)
    throw new CliError('no_input', `${path} holds no capability${wanted === undefined ? '' : ` for ${wanted}`}`);
  return new Map(entries);
}
