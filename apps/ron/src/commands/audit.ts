/** `ron audit verify`: reads every byte of the audit log and computes it anew. Needs no service, only its directory or URL. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TileSource } from '@ron/tlog';
import { usage } from '../args.ts';
import { command, REACH_OPTIONS, type Invocation } from '../command.ts';
import { CliError, systemCode } from '../exits.ts';
import { columns } from '../format.ts';
import { homeOf } from '../home.ts';
import { withKms } from '../kms.ts';
import { ProgressLine } from '../progress-line.ts';
import { reach } from '../reach.ts';
import { explained } from '../service-client.ts';

const options = {
  vkey: {
    type: 'string',
    multiple: true,
    value: 'KEY',
    doc: 'A key that must have signed the log, as name+id+key. Repeatable. Default: those that lie beside it.',
  },
  ...REACH_OPTIONS,
} as const;

type AuditInvocation = Invocation<typeof options>;

interface Opened {
  readonly source: TileSource;
  readonly vkeys: readonly string[];
}

export default command({
  name: 'audit',
  usage: 'audit verify [DIR|URL]',
  about:
    'Checks the audit log of kms: every entry, every hash, the tree over all of them and the signatures of its checkpoint.\n' +
    'Tells the first damage it finds and ends with 65 then. It works on the directory of a log, also while kms runs or\n' +
    'after it stopped, or over HTTP. Keys that lie beside the log prove that nothing was changed later by somebody without\n' +
    'them; keep a copy elsewhere and give it with --vkey to be sure of more.',
  options,
  args: [1, 2],
  words: ['verify'],
  examples: {
    'ron audit verify': 'the log of this node',
    'ron audit verify /backup/kms/audit': 'a copy of it',
    'ron audit verify http://127.0.0.1:7105/v1/kms/audit': 'as anybody sees it',
  },
  async run(invocation) {
    const [verb, place, ...rest] = invocation.args;
    if (verb !== 'verify' || rest.length > 0) throw usage({ name: 'audit' }, 'it is `audit verify [DIR|URL]`');
    return await verify(invocation, place);
  },
});

async function verify(invocation: AuditInvocation, place: string | undefined): Promise<void> {
  const { io, signal } = invocation;
  const { verifyLog } = await import('@ron/tlog');
  const { source, vkeys } = await open(invocation, place);
  await using _ = source;
  using progress = new ProgressLine('audit', io, (entries) => `${entries} entries`);
  const audit = await verifyLog(source, vkeys, {
    signal,
    onProgress: (checked, size) => progress.update({ done_bytes: checked, total_bytes: size }),
  });
  if (!audit.ok) {
    const { where, what } = audit.damage;
    throw new CliError(
      'data',
      `${source.name}: damage at ${where}: ${what} (${audit.checked} entries are good)`,
      'damaged',
    );
  }
  const { checkpoint, unsigned, signed_by } = audit;
  const rows: [string, string][] = [
    ['log', checkpoint.origin],
    ['entries', `${checkpoint.size}, all as they were signed`],
    ['root', Buffer.from(checkpoint.root).toString('base64')],
    ...(unsigned > 0 ? [['unsigned', `${unsigned} came after the last checkpoint`] satisfies [string, string]] : []),
    ...signed_by.map((vkey): [string, string] => ['signed by', vkey.split('+').slice(0, 2).join('+')]),
  ];
  io.result(columns(rows), {
    ok: true,
    origin: checkpoint.origin,
    entries: checkpoint.size,
    unsigned,
    signed_by: signed_by.map((vkey) => vkey.split('+').slice(0, 2).join('+')),
  });
}

async function open(invocation: AuditInvocation, place: string | undefined): Promise<Opened> {
  const { values, io } = invocation;
  if (place !== undefined && /^https?:/.test(place)) return await openUrl(invocation, place);
  if (place !== undefined) return await openDir(place, values.vkey);
  const dir = join(homeOf(values, io).of('kms').data, 'audit');
  if (values.url === undefined && !io.env['RON_URL'] && existsSync(dir)) return await openDir(dir, values.vkey);
  const { url } = await reach('kms', values, io);
  return await openUrl(invocation, `${url}/v1/kms/audit`);
}

async function openDir(dir: string, given: readonly string[] | undefined): Promise<Opened> {
  const { dirSource } = await import('@ron/tlog');
  if (!existsSync(dir)) throw new CliError('no_input', `${dir}: there is no such directory`);
  const vkeys = given ?? (await keysBeside(dir));
  return { source: await dirSource(dir), vkeys };
}

async function keysBeside(dir: string): Promise<string[]> {
  const path = join(dir, 'vkeys');
  try {
    return (await readFile(path, 'utf8')).split('\n').filter((line) => line !== '');
  } catch (error) {
    throw new CliError('no_input', `${path}: the keys cannot be read (${systemCode(error)}); give them with --vkey`);
  }
}

async function openUrl({ values, io, signal }: AuditInvocation, url: string): Promise<Opened> {
  const { urlSource } = await import('@ron/tlog');
  // What a capability may be sent to is decided by the address that was given, like that of every other command.
  const service = { ...values, url: new URL(url).origin };
  const reached = await reach('kms', service, io);
  const { capability } = reached;
  const vkeys = values.vkey ?? (await withKms(service, io, signal, (client) => client.auditKeys())).vkeys;
  const headers = capability === undefined ? {} : { authorization: `Bearer ${capability}` };
  return { source: explaining(urlSource(url, { headers }), (error) => explained(error, 'kms', reached)), vkeys };
}

/** A source whose refusals say what to do. */
function explaining(source: TileSource, explain: (error: unknown) => unknown): TileSource {
  const rethrow = (error: unknown): never => {
    throw explain(error);
  };
  return {
    name: source.name,
    checkpoint: (signal) => source.checkpoint(signal).catch(rethrow),
    tile: (path, signal) => source.tile(path, signal).catch(rethrow),
    [Symbol.asyncDispose]: () => source[Symbol.asyncDispose](),
  };
}
