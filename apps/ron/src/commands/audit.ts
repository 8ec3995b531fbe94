/**
 * `ron audit verify`: reads the whole audit log and recomputes its hashes, from its directory or over HTTP.
 * `ron audit accept`: goes on after damage, see audit/accept.ts.
 */
import { readFile, stat } from 'node:fs/promises';
import type { SignedCheckpoint } from '@ron/tlog';
import { usage } from '../args.ts';
import { LOGS, openLog, type LogName, type OpenedLog } from '../audit/open-log.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { CliError, systemCode } from '../exits.ts';
import { columns } from '../format.ts';
import { ProgressLine } from '../progress-line.ts';

const options = {
  vkey: {
    type: 'string',
    multiple: true,
    value: 'KEY',
    doc: 'A key that must have signed the log, as name+id+key. Repeatable. Default: the keys stored with the log.',
  },
  since: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    doc: 'An earlier checkpoint: the log must be an extension of it. Repeatable.',
  },
  proof: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    doc: 'An inclusion proof issued by kms. Repeatable. With --vkey and without a log, only the proof is verified.',
  },
  log: {
    type: 'string',
    value: 'NAME',
    doc: 'verify: the log of this node to verify: kms (default), or edge, which logs the sources of fetched assets.',
  },
  reason: { type: 'string', value: 'TEXT', doc: 'accept: why the damage is accepted; recorded in the new log.' },
  before: { type: 'string', value: 'INDEX', doc: 'prune: the first entry to keep.' },
  keep: { type: 'string', value: 'DURATION', doc: 'prune: how long entries are kept, such as 90d.' },
  archive: { type: 'string', value: 'DIR', doc: 'prune: copy the log there first, or continue an earlier copy.' },
  yes: { type: 'boolean', doc: 'Do not ask for confirmation.' },
  ...CONNECTION_OPTIONS,
} as const;

type AuditInvocation = Invocation<typeof options>;

export default command({
  name: 'audit',
  usage: 'audit verify [DIR|URL] | audit accept --reason TEXT | audit prune --before INDEX|--keep DURATION',
  about:
    'Verifies the audit log of kms, or with --log edge the fill log of edge: every entry, the hash tree, and the signatures\n' +
    'of its checkpoint. Reports the first damage and exits with 65. Reads the directory of a log, even while its service\n' +
    'runs, or a URL. The keys stored with the log\n' +
    'detect changes only by users who cannot replace those keys: keep a copy elsewhere and pass it with --vkey. To detect\n' +
    'a log that was restored to an earlier state, pass a checkpoint or a proof from elsewhere with --since or --proof.\n' +
    'accept shows the damage for which kms refuses to sign, and goes on after your confirmation: the found log is kept as\n' +
    'audit.N, and a new log begins whose first entry records the damage, the reason and the capability that accepted it.\n' +
    'prune removes old entries permanently, to free disk space. The log records it; later entries stay provable.',
  options,
  args: [1, 2],
  words: ['verify', 'accept', 'prune'],
  examples: {
    'ron audit verify': 'verify the log of this node',
    'ron audit verify /backup/kms/audit': 'verify a copy',
    'ron audit verify http://127.0.0.1:7105/v1/kms/audit': 'verify over HTTP',
    'ron audit verify --log edge': 'verify the fill log of this node',
    'ron audit verify --since last-week.checkpoint': 'verify that the log extends an earlier checkpoint',
    'ron audit verify --proof answer.json --vkey KEY': 'verify a proof without the log',
    'ron audit accept --reason "restored after a disk failure"': 'go on with a new log',
    'ron audit prune --keep 365d --archive /backup/audit': 'copy the log, then remove entries older than a year',
  },
  async run(invocation) {
    const [verb, place, ...rest] = invocation.args;
    if (verb !== 'verify' && invocation.values.log !== undefined)
      throw usage({ name: 'audit' }, '--log belongs to `audit verify`');
    if (verb === 'accept' && place === undefined) {
      const { accept } = await import('../audit/accept.ts');
      return await accept(invocation.values, invocation.io, invocation.signal);
    }
    if (verb === 'prune' && place === undefined) {
      const { prune } = await import('../audit/prune.ts');
      return await prune(invocation.values, invocation.io, invocation.signal, () => open(invocation, undefined));
    }
    if (verb !== 'verify' || rest.length > 0)
      throw usage({ name: 'audit' }, 'expected `audit verify [DIR|URL]`, `audit accept` or `audit prune`');
    return await verify(invocation, place);
  },
});

async function verify(invocation: AuditInvocation, place: string | undefined): Promise<void> {
  const { io, signal, values } = invocation;
  const { verifyLog } = await import('@ron/tlog');
  if (place === undefined && values.proof !== undefined && values.vkey !== undefined && values.since === undefined) {
    return await verifyProofs(invocation, values.proof, values.vkey);
  }
  const { source, vkeys } = await open(invocation, place);
  await using _ = source;
  const known = await knownCheckpoints(invocation, vkeys);
  using progress = new ProgressLine('audit', io, (entries) => `${entries} entries`);
  const audit = await verifyLog(source, vkeys, {
    signal,
    known,
    ...(known[0] === undefined ? {} : { origin: known[0].origin }),
    onProgress: (checked, size) => progress.update({ done_bytes: checked, total_bytes: size }),
  });
  if (!audit.ok) {
    const { where, what } = audit.damage;
    throw new CliError(
      'data',
      `${source.name}: damage at ${where}: ${what} (${audit.checked} entries verified)`,
      'damaged',
    );
  }
  const { checkpoint, first, unsigned, signed_by } = audit;
  const rows: [string, string][] = [
    ['log', checkpoint.origin],
    ['entries', first === 0 ? `${checkpoint.size}, all verified` : `${checkpoint.size}, from ${first} on all verified`],
    ...(first === 0
      ? []
      : [['pruned', `entries before ${first} were removed; the log records it`] satisfies [string, string]]),
    ['root', Buffer.from(checkpoint.root).toString('base64')],
    ...known.map(({ by, size }): [string, string] => ['extends', `${by}, ${size} entries`]),
    ...(unsigned > 0 ? [['unsigned', `${unsigned} after the last checkpoint`] satisfies [string, string]] : []),
    ...signed_by.map((vkey): [string, string] => ['signed by', vkey.split('+').slice(0, 2).join('+')]),
  ];
  io.result(columns(rows), {
    ok: true,
    origin: checkpoint.origin,
    entries: checkpoint.size,
    first,
    unsigned,
    signed_by: signed_by.map((vkey) => vkey.split('+').slice(0, 2).join('+')),
  });
}

/** Verifies proofs without a log. */
async function verifyProofs(
  { io }: AuditInvocation,
  files: readonly string[],
  vkeys: readonly string[],
): Promise<void> {
  const { checkEntryProof, PROOF_BYTES_MAX } = await import('@ron/tlog');
  const proven = [];
  for (const file of files) {
    const { index, entry, checkpoint } = await readChecked(file, PROOF_BYTES_MAX, (text) =>
      checkEntryProof(text, vkeys),
    );
    proven.push({ file, index, entry: Buffer.from(entry).toString('utf8'), size: checkpoint.size });
  }
  const rows = proven.flatMap(({ file, index, entry, size }): [string, string][] => [
    ['proof', `${file}: entry ${index} of ${size}, verified`],
    ['entry', entry],
  ]);
  io.result(columns(rows), { ok: true, proofs: proven });
}

type KnownCheckpoint = Pick<SignedCheckpoint, 'origin' | 'size' | 'root'> & { readonly by: string };

/** Checkpoints of the log from --since and --proof. */
async function knownCheckpoints({ values }: AuditInvocation, vkeys: readonly string[]): Promise<KnownCheckpoint[]> {
  const { checkEntryProof, NOTE_BYTES_MAX, PROOF_BYTES_MAX, readSigned } = await import('@ron/tlog');
  const known: KnownCheckpoint[] = [];
  for (const by of values.since ?? []) {
    const { origin, size, root } = await readChecked(by, NOTE_BYTES_MAX, (text) => readSigned(text, vkeys));
    known.push({ origin, size, root, by });
  }
  for (const by of values.proof ?? []) {
    const { checkpoint } = await readChecked(by, PROOF_BYTES_MAX, (text) => checkEntryProof(text, vkeys));
    known.push({ origin: checkpoint.origin, size: checkpoint.size, root: checkpoint.root, by });
  }
  return known;
}

/** Reads a file and applies `check` to its text. */
async function readChecked<A>(file: string, bytes_max: number, check: (text: string) => A): Promise<A> {
  const { size } = await stat(file).catch((error: unknown) => {
    throw new CliError('no_input', `cannot read ${file} (${systemCode(error)})`);
  });
  if (size > bytes_max) throw new CliError('data', `${file} has more than ${bytes_max} bytes`, 'damaged');
  try {
    return check(await readFile(file, 'utf8'));
  } catch (error) {
    throw new CliError('data', `${file}: ${(error as Error).message}`, 'damaged');
  }
}

async function open({ values, io, signal }: AuditInvocation, place: string | undefined): Promise<OpenedLog> {
  const { log = 'kms' } = values;
  if (!LOGS.includes(log as LogName)) throw usage({ name: 'audit' }, `--log is ${LOGS.join(' or ')}, not ${log}`);
  return await openLog({ log: log as LogName, place, values, io, signal });
}
