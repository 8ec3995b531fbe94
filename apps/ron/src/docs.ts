/** The reference in `docs/cli.md`, made from the tables that the commands run by. */
import { COMMANDS, loadCommand } from './commands.ts';
import { EXITS } from './exits.ts';
import { commandHelp } from './help.ts';
import { SERVICE_TABLE } from './up/table/services.ts';

const ENVIRONMENT: Readonly<Record<string, string>> = {
  RON_DIR: 'the directory of the node, when `--dir` is not given',
  RON_URL: 'where storage is, when `--url` is not given',
  RON_CAPABILITY_FILE: 'the capability to use, when `--capability-file` is not given',
  XDG_CACHE_HOME: 'below it, in `ron`, compiled code lies and unfinished uploads are remembered; default `~/.cache`',
  ...Object.fromEntries(
    SERVICE_TABLE.map(({ name }) => [
      `RON_${name.toUpperCase()}_*`,
      `keys of ${name}, for \`ron up\`; see [config.md](config.md)`,
    ]),
  ),
  RON_KEK: 'what seals the secrets of services, 64 hex digits; default: a key beside each of them',
};

const FILES: Readonly<Record<string, string>> = {
  keys: 'the root key of a node without kms; mode 0600. Its holder can create any capability',
  'root.cap':
    'JSON with a capability for each service; mode 0600. Made by the first `ron up`, renewed when a third of its 90 days is left',
  'node.json': 'what runs now: process ids and URLs. Other commands find the services by it',
  lock: 'held by the `ron up` that runs; a lock of the operating system, so nothing has to be removed after a crash',
  '<service>/<callee>.cap':
    'the capability with which the service calls another one; mode 0600. `kms.cap` derives the keys of the service',
  '<service>/keys': 'without kms: the keys of that service alone',
  '<service>/auth': 'these keys and what is revoked, sealed, for a start without kms',
  '<service>/url': 'where it listens',
  'kms/owner.cap': 'a capability for all of kms, which mints the others through it',
  '<service>/data': 'what it stores',
  'logs/<service>.log': 'its log, 8 MiB and one older file',
};

export async function renderCliDocs(): Promise<string> {
  const commands = await Promise.all(Object.keys(COMMANDS).map(loadCommand));
  const sections = commands.flatMap((each) => [`## ron ${each.name}`, '', '```', commandHelp(each), '```', '']);
  const exits = Object.values(EXITS).map(({ code, when }): [string, string] => [String(code), when]);
  return [
    ...sections,
    '## Exit codes',
    '',
    ...table('Code', exits),
    '',
    '## Environment',
    '',
    ...table('Variable', code(ENVIRONMENT)),
    '',
    '## Files in the directory of a node',
    '',
    ...table('File', code(FILES)),
  ].join('\n');
}

const code = (rows: Readonly<Record<string, string>>): [string, string][] =>
  Object.entries(rows).map(([name, meaning]) => [`\`${name}\``, meaning]);

function table(head: string, rows: readonly (readonly [string, string])[]): string[] {
  return [`| ${head} | Meaning |`, '| --- | --- |', ...rows.map(([left, right]) => `| ${left} | ${right} |`)];
}
