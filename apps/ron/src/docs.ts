/** Renders `docs/cli.md` from the tables that the commands use. */
import { COMMANDS, loadCommand } from './commands.ts';
import { EXITS } from './exits.ts';
import { commandHelp } from './help.ts';
import { SERVICE_TABLE } from './up/table/services.ts';

const ENVIRONMENT: Readonly<Record<string, string>> = {
  RON_DIR: 'the directory of the node, if `--dir` is not given',
  RON_URL: 'the URL of the service, if `--url` is not given',
  RON_TLS_PIN: 'the hash of the public key of an https server, if `--pin` is not given',
  RON_CAPABILITY_FILE: 'the capability file, if `--capability-file` is not given',
  RON_TRUST: 'the list of trusted keys for `ron verify`, if `--trust` is not given',
  XDG_CACHE_HOME: 'its subdirectory `ron` holds compiled code and the URLs of unfinished uploads; default `~/.cache`',
  ...Object.fromEntries(
    SERVICE_TABLE.map(({ name }) => [
      `RON_${name.toUpperCase()}_*`,
      `configuration keys of ${name}, for \`ron up\`; see [config.md](config.md)`,
    ]),
  ),
  RON_KEK:
    'the key that seals the secrets of the services, 64 hex digits; default: a key file beside each secret. Only kms receives it; each other service gets a key derived from it. A key file (`kms.kek_file`) is safer: a process keeps its first environment in `/proc/PID/environ`',
  RON_PIN: 'the PIN of the PKCS #11 token, if `pkcs11.pin_file` is not set; only kms receives it',
};

const FILES: Readonly<Record<string, string>> = {
  keys: 'the root key of a node without kms; mode 0600. Its holder can mint any capability',
  'root.cap':
    'JSON with a capability for each service; mode 0600. Created by the first `ron up`, valid for 90 days, renewed 30 days before it expires',
  trust:
    'optional: the keys that `ron verify` trusts, one per line; read only if `--dir` or `RON_DIR` names the directory',
  'node.json': 'process ids and URLs of the running services; other commands read it',
  lock: 'held by the running `ron up`. The operating system releases it after a crash, so it never has to be deleted',
  '<service>/<callee>.cap':
    'the capability with which the service calls another one; mode 0600. With `kms.cap` the service derives its keys',
  '<service>/keys': 'without kms: the keys of this service',
  '<service>/auth': 'sealed cache of the keys and revocations, for a start without kms',
  '<service>/url': 'the URL of the service',
  'kms/owner.cap': 'a capability with all scopes of kms; `ron up` mints the others with it',
  '<service>/data': 'the data of the service',
  'logs/<service>.log': 'the log of the service: at most 8 MiB, and one older file',
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
