/** `ron keys`: creates, rotates and lists keys, which never leave kms, and replaces the secret that seals them. */
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { columns } from '../format.ts';
import { withKms } from '../kms.ts';
import { REKEY_OPTIONS } from '../rekey/options.ts';

const options = {
  tenant: { type: 'string', value: 'NAME', doc: 'The owner of the key. Default for create: default; for list: all.' },
  purpose: {
    type: 'string',
    value: 'NAME',
    doc: 'create: the purpose of the key; raw signs bytes as they are. Default docs.',
  },
  alg: {
    type: 'string',
    value: 'ALG',
    doc: 'create: ed25519, ml-dsa-44, ml-dsa-65, ml-dsa-87, hybrid, x-wing, aes-256-gcm, hmac-sha256. Default hybrid.',
  },
  ...REKEY_OPTIONS,
  ...CONNECTION_OPTIONS,
} as const;

type KeysInvocation = Invocation<typeof options>;

export default command({
  name: 'keys',
  usage: 'keys create | keys rotate KID | keys list | keys rekey',
  about:
    'create makes a key and prints its name. rotate adds a version, which signs from then on; older versions still\n' +
    'verify. list prints names, versions and the custody class of each key. Private keys never leave kms.\n' +
    'rekey replaces the key or passphrase that seals the data of kms; the node must be stopped.',
  options,
  args: [1, 2],
  words: ['create', 'rotate', 'list', 'rekey'],
  examples: {
    'ron keys create --tenant acme --alg ed25519': 'print acme/docs/ed25519/...#v1',
    'ron keys rotate acme/docs/ed25519/...#v1': 'print acme/docs/ed25519/...#v2',
    'ron keys list --json': 'print one key per line',
    'ron keys rekey --generate': 'seal the data of kms with a new key',
  },
  async run(invocation) {
    const [verb, kid, ...rest] = invocation.args;
    if (verb === 'create' && kid === undefined) return await create(invocation);
    if (verb === 'rotate' && kid !== undefined && rest.length === 0) return await rotate(invocation, kid);
    if (verb === 'list' && kid === undefined) return await list(invocation);
    if (verb === 'rekey' && kid === undefined) {
      const { rekey } = await import('../rekey/rekey.ts');
      return await rekey(invocation.values, invocation.io, invocation.signal);
    }
    throw usage({ name: 'keys' }, 'expected `keys create`, `keys rotate KID`, `keys list` or `keys rekey`');
  },
});

async function create({ values, io, signal }: KeysInvocation): Promise<void> {
  const { tenant = 'default', purpose = 'docs', alg = 'hybrid' } = values;
  const made = await withKms(values, io, signal, (client) => client.createKey({ tenant, purpose, alg }));
  io.result(made.kid, made);
}

async function rotate({ values, io, signal }: KeysInvocation, kid: string): Promise<void> {
  const rotated = await withKms(values, io, signal, (client) => client.rotateKey(kid));
  io.result(rotated.kid, rotated);
}

async function list({ values, io, signal }: KeysInvocation): Promise<void> {
  await withKms(values, io, signal, async (client) => {
    for await (const key of client.keys({ tenant: values.tenant })) {
      io.result(columns([[key.kid, `${key.attestation_class}, ${key.versions.join(' ')}`]]), key);
    }
  });
}
