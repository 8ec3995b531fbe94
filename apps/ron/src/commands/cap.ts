/** `ron cap`: what capabilities say, and narrower ones made from them. Needs no service. */
import { isService } from '@ron/proto';
import { usage } from '../args.ts';
import { readCapabilities, type Capabilities } from '../capability-file.ts';
import { command, REACH_OPTIONS, type Invocation } from '../command.ts';
import { CliError } from '../exits.ts';
import { columns } from '../format.ts';
import { homeOf } from '../home.ts';
import { writeSecret } from '../secret-file.ts';

const { dir, 'capability-file': capabilityFile } = REACH_OPTIONS;
const options = {
  audience: {
    type: 'string',
    value: 'SERVICE',
    doc: 'Which capability of the file. Default: the only one, or storage.',
  },
  output: {
    type: 'string',
    short: 'o',
    value: 'FILE',
    doc: 'attenuate: write the token to this file, mode 0600, instead of printing it.',
  },
  dir,
  'capability-file': capabilityFile,
} as const;

type CapInvocation = Invocation<typeof options>;

export default command({
  name: 'cap',
  usage: 'cap show | cap attenuate CAVEAT...',
  about:
    'show prints what a capability says, without the secret. attenuate makes a narrower one and prints it: it is a secret,\n' +
    'treat it as one. Narrowing needs no key and no service. Caveats are listed in packages/auth/README.md; those that are\n' +
    'most used: "scopes in storage:get", "expires < UNIX_MS", "address ^= b3:00", "bytes <= 1048576", "rate <= 10/s".',
  options,
  args: [1, 32],
  words: ['show', 'attenuate'],
  examples: {
    'ron cap show': 'what root.cap allows',
    'ron cap attenuate "scopes in storage:get" -o reader.cap': 'a capability that can only read',
    'ron put x --capability-file reader.cap': 'refused: it can only read',
  },
  async run(invocation) {
    const [verb, ...caveats] = invocation.args;
    if (verb === 'show' && caveats.length === 0) return await show(invocation);
    if (verb === 'attenuate' && caveats.length > 0) return await narrow(invocation, caveats);
    throw usage(
      { name: 'cap' },
      verb === 'attenuate' ? 'which caveats?' : 'it is `cap show` or `cap attenuate CAVEAT...`',
    );
  },
});

async function show({ values, io }: CapInvocation): Promise<void> {
  const { inspectToken } = await import('@ron/auth');
  for (const token of (await tokens(values, io)).values()) {
    const { audience, subject, scopes, expires_ms, texts, capability_id, problem } = inspectToken(token);
    const expires = new Date(expires_ms).toISOString();
    // The first three caveats are audience, expiry and scopes; what follows narrows further.
    const rows: [string, string][] = [
      ['audience', audience],
      ['scopes', scopes.join(' ')],
      ['expires', expires],
      ['subject', subject],
      ['id', capability_id],
      ...texts.slice(3).map((text): [string, string] => ['caveat', text]),
      ...(problem === undefined ? [] : [['refused', problem] satisfies [string, string]]),
    ];
    io.result(columns(rows), { audience, scopes, expires, subject, id: capability_id, caveats: texts, problem });
  }
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
