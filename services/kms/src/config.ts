/** The configuration of kms: the listener's keys, the process's keys and its own, named as operators know them. */
import { AddressPolicy, rulesFor } from '@ron/egress';
import { defineConfig, key } from '@ron/config';
import { PROCESS_KEYS } from '@ron/service';
import type { ConfigOf } from '@ron/config';
import { AUTH_KEYS } from '@ron/auth/service';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';

/** It derives the keys itself. */
const { 'auth.kms_url': _url, 'auth.capability_file': _file, ...OWN_AUTH_KEYS } = AUTH_KEYS;

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  data_dir: key.optional(
    key.text({ doc: 'Where keys and the audit log are kept. Needed unless amnesia is on, which ignores it.' }),
  ),
  'kms.backend': key.oneOf(['file', 'memory', 'pkcs11', 'tpm', 'cloud'], {
    default: 'file',
    doc: 'Where private keys are kept: a sealed file, memory (gone with the process), a PKCS#11 token, a TPM, or AWS KMS (wraps and derives only).',
  }),
  'pkcs11.module': key.optional(key.text({ doc: 'The shared library of the token. For a TPM: that of tpm2-pkcs11.' })),
  'pkcs11.token': key.optional(key.text({ doc: 'The label of the token.' })),
  'pkcs11.pin_file': key.optional(
    key.text({ doc: 'A file with the PIN, mode 0600. Default: RON_PIN in the environment.' }),
  ),
  'pkcs11.sessions': key.integer({
    default: 1,
    min: 1,
    max: 64,
    doc: 'Calls to the token at once, each in a session of its own; a TPM has one.',
  }),
  'cloud.region': key.optional(
    key.text({ doc: 'The region of AWS KMS. Credentials are found as AWS tools find them.' }),
  ),
  'cloud.endpoint': key.optional(key.text({ doc: 'Another endpoint than that of the region.' })),
  'egress.networks': key.list({
    default: [],
    doc: 'CIDR blocks without public addresses in which the witness or the cloud endpoint may be, such as 10.0.0.0/8. Plain HTTP is allowed only there.',
  }),
  'egress.ca_file': key.optional(
    key.text({ doc: 'PEM certificates that are trusted beside those of the system, for the witness and the cloud.' }),
  ),
  'kms.kek_file': key.optional(
    key.text({
      doc: 'A file with the 32 bytes, in hex or base64, that seal everything in data_dir. Default: RON_KEK in the environment, else `kek` in data_dir, made when it is missing.',
    }),
  ),
  'kms.passphrase_file': key.optional(
    key.text({ doc: 'Instead of a key: a file with a passphrase, stretched by scrypt.' }),
  ),
  'kms.keys_max': key.integer({ default: 10_000, min: 1, max: 16_000, doc: 'Keys in all.' }),
  'kms.signers': key.integer({ default: 4, min: 1, max: 256, doc: 'Batches of operations with the backend at once.' }),
  'kms.sign_batch': key.integer({
    default: 64,
    min: 1,
    max: 128,
    doc: 'Operations that one signer takes at a time, at most; two milliseconds of work are enough.',
  }),
  'kms.work_sign': key.integer({
    default: 512,
    min: 2,
    max: 65_536,
    doc: 'Operations that wait for a signer; a batch takes a place for each millisecond of its work, at most a quarter of them.',
  }),
  'kms.sign_deadline': key.duration({
    default: '2s',
    min: '10ms',
    max: '1m',
    doc: 'An operation with a private key, from request to answer.',
    reloadable: true,
  }),
  'kms.verify_ttl': key.duration({
    default: '15m',
    min: '1ms',
    max: '24d',
    doc: 'How long signatures are verified with known public keys while the backend is away.',
    reloadable: true,
  }),
  'kms.delete_wait': key.duration({
    default: '7d',
    min: '1ms',
    max: '3650d',
    doc: 'Between the two steps that delete a version of a key.',
    reloadable: true,
  }),
  'kms.ops_max': key.integer({ default: 100_000, min: 2, max: 10_000_000, doc: 'Operation ids that are kept.' }),
  'kms.attest_interval': key.duration({
    default: '5m',
    min: '10ms',
    max: '24d',
    doc: 'How often the attestation of the backend is renewed.',
    reloadable: true,
  }),
  'kms.keep_interval': key.duration({
    default: '1s',
    min: '10ms',
    max: '1h',
    doc: 'How often the keeper looks at the backend.',
    reloadable: true,
  }),
  'audit.mode': key.oneOf(['continue', 'strict'], {
    default: 'continue',
    doc: 'When the audit log does not keep up: go on and log a gap, or refuse to work without an entry.',
    reloadable: true,
  }),
  'audit.queue': key.integer({ default: 2048, min: 2, max: 1_000_000, doc: 'Events that wait for the audit log.' }),
  'audit.checkpoint_interval': key.duration({
    default: '1s',
    min: '10ms',
    max: '1h',
    doc: 'An entry is covered by a signed checkpoint after this at the latest.',
    reloadable: true,
  }),
  'audit.checkpoint_ops': key.integer({
    default: 16_384,
    min: 1,
    max: 10_000_000,
    doc: 'So many new entries make a checkpoint at once.',
    reloadable: true,
  }),
  'audit.checkpoint_deadline': key.duration({
    default: '1s',
    min: '10ms',
    max: '1m',
    doc: 'A checkpoint that takes longer is missed: the service is not ready until one succeeds.',
    reloadable: true,
  }),
  'audit.origin': key.optional(
    key.text({
      pattern: /^[^\s+]{1,200}$/,
      expects: 'a name without spaces',
      doc: 'The name of the log. Default: a random one.',
    }),
  ),
  'audit.public': key.boolean({ default: false, doc: 'Whether the audit log can be read without a capability.' }),
  'audit.witness_url': key.optional(
    key.text({ doc: 'A witness (C2SP tlog-witness) that sees each checkpoint. Default: none.' }),
  ),
  'audit.witness_key': key.optional(key.text({ doc: 'The verifier key of the witness.' })),
  ...OWN_AUTH_KEYS,
  'auth.owner_file': key.optional(
    key.text({
      doc: 'Where kms leaves a capability with all of its scopes for its owner, mode 0600. Default: nowhere.',
    }),
  ),
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep everything in memory and write to no disk.' }),
  'amnesia.bytes_max': key.size({ default: '64MiB', min: '1MiB', max: '1TiB', doc: 'Memory for the log in amnesia.' }),
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  const { amnesia, audit, kms } = config;
  if (config.data_dir === undefined && !amnesia.enabled)
    report('data_dir', 'a directory, unless amnesia.enabled is set');
  if (kms.kek_file !== undefined && kms.passphrase_file !== undefined) {
    report('kms.passphrase_file', 'nothing, because kms.kek_file is set');
  }
  const needsToken = kms.backend === 'pkcs11' || kms.backend === 'tpm';
  if (needsToken && config.pkcs11.module === undefined) report('pkcs11.module', `a path, because of ${kms.backend}`);
  if (needsToken && config.pkcs11.token === undefined) report('pkcs11.token', `a label, because of ${kms.backend}`);
  if (kms.backend === 'cloud' && config.cloud.region === undefined)
    report('cloud.region', 'a region, because of cloud');
  const { networks } = config.egress;
  if (!isUsable(() => new AddressPolicy(networks))) report('egress.networks', 'CIDR blocks such as 10.0.0.0/8');
  for (const [name, url] of [
    ['cloud.endpoint', config.cloud.endpoint],
    ['audit.witness_url', audit.witness_url],
  ] as const)
    if (url !== undefined && !isUsable(() => rulesFor(url))) report(name, 'a URL such as https://host');
  if (audit.witness_url !== undefined && audit.witness_key === undefined) {
    report('audit.witness_key', 'a verifier key, because audit.witness_url is set');
  }
  if (audit.witness_url === undefined && audit.witness_key !== undefined) {
    report('audit.witness_url', 'a URL, because audit.witness_key is set');
  }
});

function isUsable(parse: () => unknown): boolean {
  try {
    parse();
    return true;
  } catch {
    return false;
  }
}

export type KmsConfig = ConfigOf<typeof schema>;
