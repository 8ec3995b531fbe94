/** `ron cap`: shows and attenuates capabilities; issues and revokes them through passport. */
import { PassportClient } from '@ron/client';
import { parseDuration_ms } from '@ron/config/units';
import { isService, type TokenVerdict } from '@ron/proto';
import { usage } from '../args.ts';
import { audienceRoot } from '../audience-root.ts';
import { readCapabilities, type Capabilities } from '../capability-file.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { CliError, messageOf } from '../exits.ts';
import { columns } from '../format.ts';
import { homeOf } from '../home.ts';
import { writeSecret } from '@ron/log/secret-file';
import { passportVerdict } from '../passport-verdict.ts';
import { withClient } from '../service-client.ts';

const { dir, pin, 'capability-file': capabilityFile } = CONNECTION_OPTIONS;
const options = {
  audience: {
    type: 'string',
    value: 'SERVICE',
    doc: 'The service of the capability. Default: the only one in the file, that of the scopes, or storage.',
  },
  scopes: { type: 'string', value: 'A,B', doc: 'issue: the scopes, for example storage:get,storage:put.' },
  ttl: {
    type: 'string',
    value: 'DURATION',
    doc: 'issue: the lifetime, for example 1h or 7d. Passport sets the default and the maximum.',
  },
  subject: {
    type: 'string',
    value: 'NAME',
    doc: 'issue: the subject, by which it can be revoked. Default: a unique name.',
  },
  all: { type: 'boolean', doc: 'revoke: the capabilities of all subjects.' },
  id: { type: 'string', value: 'ID', doc: 'revoke: one capability, by the id that `cap show` prints.' },
  output: {
    type: 'string',
    short: 'o',
    value: 'FILE',
    doc: 'attenuate, issue: write the token to this file, mode 0600, instead of printing it.',
  },
  dir,
  url: {
    ...CONNECTION_OPTIONS.url,
    doc: 'issue, revoke: the URL of passport; root: of kms. Default: RON_URL, or the service that runs in the directory.',
  },
  pin,
  'capability-file': capabilityFile,
} as const;

type CapInvocation = Invocation<typeof options>;

export default command({
  name: 'cap',
  usage:
    'cap show | cap attenuate CAVEAT... | cap issue --scopes A,B [CAVEAT...] | cap revoke SUBJECT|--id ID|--all | cap root [rotate | retire VERSION]',
  about:
    'show prints the scopes and caveats of a capability and, if passport runs, whether it is valid. attenuate adds caveats\n' +
    'and prints the new capability, which is a secret; it needs no key and no service. issue requests a new capability from\n' +
    'passport. revoke invalidates the capabilities issued to a subject until now, or one capability with all that was\n' +
    'attenuated or issued from it; services apply it within two seconds. root shows the root of the capability keys in kms;\n' +
    'rotate creates its next version, and retire makes capabilities under older versions invalid.\n' +
    'Caveats are described in packages/auth/README.md. Common ones: "scopes in storage:get", "expires < UNIX_MS",\n' +
    '"address ^= b3:00", "bytes <= 1048576", "rate <= 10/s".',
  options,
  args: [1, 32],
  words: ['show', 'attenuate', 'issue', 'revoke', 'root'],
  examples: {
    'ron cap show': 'print the scopes of root.cap',
    'ron cap attenuate "scopes in storage:get" -o reader.cap': 'create a read-only capability',
    'ron put x --capability-file reader.cap': 'refused: reader.cap is read-only',
    'ron cap issue --scopes storage:put --ttl 7d --subject alice -o alice.cap': 'issue one for alice',
    'ron cap revoke alice': 'revoke the capabilities of alice',
    'ron cap revoke --id 2mJt0y8Sk3Vq5dQzLwH1xA': 'revoke one capability',
    'ron cap root rotate': 'create a new root of the capability keys',
    'ron cap root retire 2': 'refuse all capabilities under version 1',
    'ron cap revoke --all': 'revoke all; `ron up` renews its own within a minute',
  },
  async run(invocation) {
    const [verb, ...rest] = invocation.args;
    if (verb === 'show' && rest.length === 0) return await show(invocation);
    if (verb === 'attenuate' && rest.length > 0) return await narrow(invocation, rest);
    if (verb === 'issue') return await issue(invocation, rest);
    if (verb === 'root') return await audienceRoot(invocation, rest);
    const target = verb === 'revoke' ? targetOf(invocation, rest) : undefined;
    if (target !== undefined) return await revoke(invocation, target);
    const words = { attenuate: 'Specify at least one caveat', revoke: 'Specify a subject, --id or --all' }[verb ?? ''];
    throw usage(
      { name: 'cap' },
      words ?? 'expected `cap show`, `cap attenuate`, `cap issue`, `cap revoke` or `cap root`',
    );
  },
});

async function show(invocation: CapInvocation): Promise<void> {
  const { values, io } = invocation;
  const { inspectToken } = await import('@ron/auth');
  for (const token of (await tokens(values, io)).values()) {
    const { audience, subject, scopes, expires_ms, texts, capability_id, problem } = inspectToken(token);
    const expires = new Date(expires_ms).toISOString();
    const verdict = await verdictOf(invocation, token);
    const state = verdict === undefined ? undefined : verdict.ok ? 'valid' : `refused: ${verdict.reason}`;
    // The first three caveats are audience, expiry and scopes; the others restrict further.
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

/** Undefined, with a note, if passport fails to answer. */
async function verdictOf({ values, io, signal }: CapInvocation, token: string): Promise<TokenVerdict | undefined> {
  try {
    return await passportVerdict(homeOf(values, io), token, io, signal);
  } catch (error) {
    signal.throwIfAborted();
    io.note(`failed to check the capability with passport: ${messageOf(error)}`);
    return undefined;
  }
}

async function issue({ values, io, signal }: CapInvocation, caveats: readonly string[]): Promise<void> {
  const { scopes, ttl, subject } = values;
  if (scopes === undefined) throw usage({ name: 'cap' }, '--scopes is required');
  const audience = values.audience ?? serviceOf(scopes.split(','));
  const ttl_ms = ttl === undefined ? undefined : parseDuration_ms(ttl);
  if (ttl !== undefined && ttl_ms === undefined)
    throw usage({ name: 'cap' }, `--ttl must be a duration like 1h or 7d, not ${ttl}`);
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

/** A capability has one audience. */
function serviceOf(scopes: readonly string[]): string {
  const [first, ...others] = new Set(scopes.map(serviceIn));
  if (first !== undefined && others.length === 0 && isService(first)) return first;
  throw usage({ name: 'cap' }, '--scopes must be scopes of one service, such as storage:get,storage:put');
}

type Target = Parameters<PassportClient['revoke']>[0];

async function revoke({ values, io, signal }: CapInvocation, target: Target): Promise<void> {
  if ('capability_id' in target) await requireId(target.capability_id);
  const revoked = await withClient(
    'passport',
    (init) => new PassportClient(init),
    values,
    io,
    signal,
    (client) => client.revoke(target, signal),
  );
  return io.result(revokedText(target), revoked);
}

async function requireId(id: string): Promise<void> {
  const { CAPABILITY_ID_PATTERN } = await import('@ron/auth');
  if (new RegExp(CAPABILITY_ID_PATTERN).test(id)) return;
  throw usage(
    { name: 'cap' },
    `--id must be an id as \`ron cap show\` prints it, 22 characters, not ${JSON.stringify(id)}`,
  );
}

function revokedText(target: Target): string {
  if ('all' in target) return 'Revoked all capabilities issued until now';
  if ('subject' in target) return `Revoked ${target.subject}'s capabilities issued until now`;
  return `Revoked ${target.capability_id} and all capabilities issued from it`;
}

/** Exactly one of a subject, `--id` and `--all`; undefined if there is none or several. */
function targetOf({ values }: CapInvocation, rest: readonly string[]): Target | undefined {
  const [subject, ...more] = rest;
  const { id, all } = values;
  const named: Target[] = [
    ...(subject === undefined ? [] : [{ subject }]),
    ...(id === undefined ? [] : [{ capability_id: id }]),
    ...(all === true ? [{ all } as const] : []),
  ];
  return named.length === 1 && more.length === 0 ? named[0] : undefined;
}

async function narrow({ values, io }: CapInvocation, caveats: readonly string[]): Promise<void> {
  const { attenuate } = await import('@ron/auth');
  const narrowed = attenuate(tokenFor(await tokens(values, io), values.audience, caveats), caveats);
  if (values.output === undefined) return io.result(narrowed, { token: narrowed });
  await writeSecret(values.output, `${narrowed}\n`);
  return io.result('', { file: values.output });
}

/** The token of the given audience, or of the service of the scopes in the caveats, or the only one, or that of storage. */
function tokenFor(
  found: ReadonlyMap<string, string>,
  audience: string | undefined,
  caveats: readonly string[],
): string {
  const [only, ...others] = found.values();
  if (others.length === 0) return only!;
  const named = new Set(caveats.flatMap((text) => SCOPES_CAVEAT.exec(text)?.[1]?.split(',') ?? []).map(serviceIn));
  const wanted = audience ?? (named.size === 0 ? 'storage' : named.size === 1 ? [...named][0]! : '');
  const token = found.get(wanted);
  if (token !== undefined) return token;
  throw usage({ name: 'cap' }, `--audience is required: the file has ${[...found.keys()].join(', ')}`);
}

const SCOPES_CAVEAT = /^scopes in (.+)$/;
const serviceIn = (scope: string): string => scope.trim().split(':')[0]!;

/** Tokens by audience; a bare token has the empty key. */
async function tokens(values: CapInvocation['values'], io: CapInvocation['io']): Promise<Map<string, string>> {
  const path = values['capability-file'] ?? (io.env['RON_CAPABILITY_FILE'] || homeOf(values, io).capability);
  const found = await readCapabilities(path);
  if (found === undefined) {
    throw new CliError(
      'no_input',
      `${path} does not exist: \`ron up\` creates it, or name another with --capability-file`,
    );
  }
  if (typeof found === 'string') return new Map([['', found]]);
  const wanted = values.audience;
  if (wanted !== undefined && !isService(wanted))
    throw usage({ name: 'cap' }, `unknown service ${JSON.stringify(wanted)}`);
  const entries = Object.entries(found as Required<Capabilities>).filter(
    ([name]) => wanted === undefined || name === wanted,
  );
  if (entries.length === 0)
    throw new CliError('no_input', `${path} has no capability${wanted === undefined ? '' : ` for ${wanted}`}`);
  return new Map(entries);
}
