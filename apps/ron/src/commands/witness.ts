/** `ron witness run`: cosigns the checkpoints of audit logs, so that a rollback of a whole node is detected. */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { usage } from '../args.ts';
import { command, type Values } from '../command.ts';
import { CliError, systemCode } from '../exits.ts';
import { readSecret } from '@ron/log/secret-file';

const options = {
  dir: {
    type: 'string',
    value: 'DIR',
    doc: 'The directory of the witness: its key, and the last checkpoint of each log.',
  },
  log: {
    type: 'string',
    multiple: true,
    value: 'KEY|FILE',
    doc: 'A verification key of a log, or a file with such keys, for example a copy of audit/vkeys. Repeatable.',
  },
  bind: {
    type: 'string',
    value: 'ADDR',
    doc: 'unix:PATH or HOST:PORT. Default: the socket `witness.sock` in DIR. Other machines require TLS.',
  },
  name: {
    type: 'string',
    value: 'NAME',
    doc: 'The name of the witness in its signatures. Default: random, then fixed.',
  },
  'tls-cert': { type: 'string', value: 'FILE', doc: 'PEM certificate chain. Reloaded on SIGHUP.' },
  'tls-key': { type: 'string', value: 'FILE', doc: 'PEM private key of the certificate.' },
} as const;

const VKEY = /^[^+\s]+\+[0-9a-f]{8}\+\S+$/;
const KEY_BYTES_MAX = 1024;

export default command({
  name: 'witness',
  usage: 'witness run --dir DIR --log KEY|FILE ... [--bind ADDR]',
  about:
    'Runs a witness (C2SP tlog-witness) for the audit logs of one or more nodes. It remembers the last checkpoint of each log\n' +
    'and cosigns only its extensions, so it detects a node whose whole directory was restored from an older copy. Run it on\n' +
    'another machine, or at least as another user in another directory. It prints its verification key first: set it as\n' +
    'audit.witness_key of kms, and the address as audit.witness_url. Do not restore DIR from a backup: begin a new one.',
  options,
  args: [1, 1],
  words: ['run'],
  ownSignals: true,
  examples: {
    'ron witness run --dir /srv/witness --log vkeys': 'listen at unix:/srv/witness/witness.sock',
    'ron witness run --dir /srv/witness --log vkeys --bind 0.0.0.0:7443 --tls-cert cert.pem --tls-key key.pem':
      'serve other machines',
  },
  async run({ values, args, io }) {
    if (args[0] !== 'run') throw usage({ name: 'witness' }, 'expected `witness run`');
    const flags = await flagsOf(values);
    const { runWitness } = await import('../witness/run-witness.ts');
    return await runWitness(flags, io);
  },
});

async function flagsOf(values: Values<typeof options>): Promise<string[]> {
  if (values.dir === undefined) throw usage({ name: 'witness' }, '--dir is required');
  if (values.log === undefined) throw usage({ name: 'witness' }, '--log is required: the keys of the log');
  const dir = resolve(values.dir);
  // Refuses a key that other users can read.
  await readSecret(join(dir, 'key'), KEY_BYTES_MAX);
  const logs = (await Promise.all(values.log.map(keysIn))).flat();
  const optional = {
    'witness.name': values.name,
    'tls.cert_file': values['tls-cert'],
    'tls.key_file': values['tls-key'],
  };
  return [
    `--witness.dir=${dir}`,
    `--witness.logs=${JSON.stringify(logs)}`,
    `--server.bind=${values.bind ?? `unix:${join(dir, 'witness.sock')}`}`,
    '--server.open_beyond_loopback=true',
    ...Object.entries(optional).flatMap(([key, value]) => (value === undefined ? [] : [`--${key}=${value}`])),
  ];
}

async function keysIn(keyOrFile: string): Promise<string[]> {
  if (VKEY.test(keyOrFile)) return [keyOrFile];
  const text = await readFile(keyOrFile, 'utf8').catch((error: unknown) => {
    throw new CliError(
      'no_input',
      `${keyOrFile} is neither a verification key nor a readable file (${systemCode(error)})`,
    );
  });
  const keys = text.split('\n').filter((line) => line !== '');
  if (keys.length > 0 && keys.every((line) => VKEY.test(line))) return keys;
  throw new CliError('data', `${keyOrFile} does not hold verification keys, one on each line`);
}
