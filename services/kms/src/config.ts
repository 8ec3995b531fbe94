/** The configuration of kms: the keys of the listener, of the process and its own. */
import { AddressPolicy, isTlsOrLoopback, rulesFor } from '@ron/egress';
import { defineConfig, key } from '@ron/config';
import { PROCESS_KEYS } from '@ron/service';
import type { ConfigOf } from '@ron/config';
import { AUTH_KEYS, checkPassportKeys } from '@ron/auth/service';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';

/** kms derives these keys itself. */
const { 'auth.kms_url': _url, 'auth.kms_pin': _pin, 'auth.capability_file': _file, ...OWN_AUTH_KEYS } = AUTH_KEYS;

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  data_dir: key.optional(
    key.text({ doc: 'Directory of the keys and the audit log. Required unless amnesia is enabled, which ignores it.' }),
  ),
  'kms.backend': key.oneOf(['file', 'memory', 'pkcs11', 'tpm', 'cloud'], {
    default: 'file',
    doc: 'Where private keys are stored: a sealed file, memory (lost on exit), a PKCS#11 token, a TPM, or AWS KMS (wrap and derive only).',
  }),
  'pkcs11.module': key.optional(key.text({ doc: 'Path of the PKCS#11 module. For a TPM: tpm2-pkcs11.' })),
  'pkcs11.token': key.optional(key.text({ doc: 'The label of the token.' })),
  'pkcs11.pin_file': key.optional(
    key.text({ doc: 'A file with the PIN, mode 0600. Default: RON_PIN in the environment.' }),
  ),
  'pkcs11.sessions': key.integer({
    default: 1,
    min: 1,
    max: 64,
    doc: 'Concurrent calls to the token, each in its own session. A TPM always uses one.',
  }),
  'cloud.region': key.optional(
    key.text({ doc: 'The AWS region. Credentials come from the default AWS provider chain.' }),
  ),
  'cloud.endpoint': key.optional(
    key.text({ doc: 'An https endpoint that replaces that of the region. Plain http is accepted on loopback only.' }),
  ),
  'egress.networks': key.list({
    default: [],
    doc: 'Non-public CIDR blocks in which the witness or the cloud endpoint may be, such as 10.0.0.0/8. Plain HTTP is allowed only there, and never for the cloud.',
  }),
  'egress.ca_file': key.optional(
    key.text({
      doc: 'PEM certificates that are trusted in addition to those of the system, for the witness and the cloud.',
    }),
  ),
  'kms.kek_file': key.optional(
    key.text({
      doc: 'A file with the 32-byte key, in hex or base64, that encrypts data_dir. Default: RON_KEK in the environment, else `kek` in data_dir, which is generated if it is missing.',
    }),
  ),
  'kms.passphrase_file': key.optional(key.text({ doc: 'A file with a passphrase (scrypt), used instead of a key.' })),
  'kms.keys_max': key.integer({
    default: 1_000_000,
    min: 1,
    max: 1_000_000,
    doc: 'Maximum number of keys, and a tenth of the maximum number of versions. One tenant holds at most as many as are free.',
  }),
  'kms.signers': key.integer({ default: 4, min: 1, max: 256, doc: 'Concurrent batches of backend operations.' }),
  'kms.sign_batch': key.integer({
    default: 64,
    min: 1,
    max: 128,
    doc: 'Maximum operations per batch; a batch is full at two milliseconds of work.',
  }),
  'kms.work_sign': key.integer({
    default: 512,
    min: 2,
    max: 65_536,
    doc: 'Operations that may wait for a signer. A batch request occupies one slot per millisecond of its work, at most a quarter of the slots.',
  }),
  'kms.sign_deadline': key.duration({
    default: '2s',
    min: '10ms',
    max: '1m',
    doc: 'Deadline of an operation with a private key, from request to response.',
    reloadable: true,
  }),
  'kms.verify_ttl': key.duration({
    default: '15m',
    min: '1ms',
    max: '24d',
    doc: 'How long cached public keys are used for verification while the backend is unavailable.',
    reloadable: true,
  }),
  'kms.delete_wait': key.duration({
    default: '7d',
    min: '1ms',
    max: '3650d',
    doc: 'Waiting period between the two calls that delete a key or version, and before min_version applies to unwrap.',
    reloadable: true,
  }),
  'kms.ops_max': key.integer({
    default: 1_000_000,
    min: 2,
    max: 1_000_000_000,
    doc: 'Maximum number of stored operation ids. One tenant holds at most as many as are free. Ids are stored for 30 days, or for ops_max divided by their rate, but at least for a day.',
  }),
  'kms.attest_interval': key.duration({
    default: '5m',
    min: '10ms',
    max: '24d',
    doc: 'Interval between refreshes of the attestation of the backend.',
    reloadable: true,
  }),
  'kms.keep_interval': key.duration({
    default: '1s',
    min: '10ms',
    max: '1h',
    doc: 'Interval between probes of the backend.',
    reloadable: true,
  }),
  'audit.mode': key.oneOf(['strict', 'continue'], {
    default: 'strict',
    doc: 'If the audit log falls behind or is full: refuse operations without an entry, or continue and record a gap.',
    reloadable: true,
  }),
  'audit.queue': key.integer({ default: 2048, min: 2, max: 1_000_000, doc: 'Events that may wait for the audit log.' }),
  'audit.reserve': key.size({
    default: '64MiB',
    min: '64KiB',
    max: '1TiB',
    doc: 'Room for the audit log that only entries of sign, create, rotate and delete may use. At most a sixteenth of the disk, or of audit.bytes_max.',
  }),
  'audit.bytes_max': key.optional(
    key.size({
      min: '1MiB',
      max: '1024TiB',
      doc: 'Maximum size of the audit log. Default: the free space of its disk.',
    }),
  ),
  'audit.verify_rate': key.integer({
    default: 20,
    min: 0,
    max: 1_000_000,
    doc: 'Verifications of a tenant, and refusals of a capability, per second that have an entry each. More are counted in summaries.',
    reloadable: true,
  }),
  'audit.checkpoint_interval': key.duration({
    default: '1s',
    min: '10ms',
    max: '1h',
    doc: 'Maximum time until a signed checkpoint covers an entry.',
    reloadable: true,
  }),
  'audit.checkpoint_ops': key.integer({
    default: 16_384,
    min: 1,
    max: 10_000_000,
    doc: 'Number of new entries that triggers a checkpoint immediately.',
    reloadable: true,
  }),
  'audit.checkpoint_deadline': key.duration({
    default: '1s',
    min: '10ms',
    max: '1m',
    doc: 'Deadline of a checkpoint. After a missed one the service is not ready until one succeeds.',
    reloadable: true,
  }),
  'audit.origin': key.optional(
    key.text({
      pattern: /^[^\s+]{1,200}$/,
      expects: 'a name without spaces',
      doc: 'The name of the log. Default: random.',
    }),
  ),
  'audit.public': key.boolean({ default: false, doc: 'Whether the audit log is readable without a capability.' }),
  'audit.witness_url': key.optional(
    key.text({
      doc: 'URL of a witness (C2SP tlog-witness) for every checkpoint, or `unix:PATH` of its socket. Default: none.',
    }),
  ),
  'audit.witness_key': key.optional(key.text({ doc: 'The verification key of the witness.' })),
  'audit.witness_max_age': key.duration({
    default: '10m',
    min: '1s',
    max: '24d',
    doc: 'How long a checkpoint may wait for its cosignature, across restarts, before mode `strict` stops signing.',
    reloadable: true,
  }),
  ...OWN_AUTH_KEYS,
  'auth.owner_file': key.optional(
    key.text({
      doc: 'File for the capability of the owner, with all scopes of kms, mode 0600. Default: none.',
    }),
  ),
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep all state in memory and write nothing to disk.' }),
  'amnesia.bytes_max': key.size({
    default: '64MiB',
    min: '1MiB',
    max: '1TiB',
    doc: 'Memory limit of the audit log in amnesia mode.',
  }),
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkPassportKeys(config, report);
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
    if (url !== undefined && !isSocket(name, url) && !isUsable(() => rulesFor(url)))
      report(name, 'a URL such as https://host');
  const { endpoint } = config.cloud;
  if (endpoint !== undefined && !isTlsOrLoopback(endpoint))
    report('cloud.endpoint', 'an https URL, because credentials and data keys are sent to it');
  if (audit.witness_url !== undefined && audit.witness_key === undefined) {
    report('audit.witness_key', 'a verifier key, because audit.witness_url is set');
  }
  if (audit.witness_url === undefined && audit.witness_key !== undefined) {
    report('audit.witness_url', 'a URL, because audit.witness_key is set');
  }
});

const isSocket = (name: string, url: string): boolean => name === 'audit.witness_url' && /^unix:./.test(url);

function isUsable(parse: () => unknown): boolean {
  try {
    parse();
    return true;
  } catch {
    return false;
  }
}

export type KmsConfig = ConfigOf<typeof schema>;
