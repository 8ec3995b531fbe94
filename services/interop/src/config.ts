/** The configuration of interop: the keys of the listener, of the process and its own. */
import { AUTH_KEYS, checkAuthKeys, checkPassportKeys } from '@ron/auth/service';
import { isPrivate } from '@ron/client/node';
import { defineConfig, key, type ConfigOf } from '@ron/config';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';
import { PROCESS_KEYS } from '@ron/service';

const INTEROP_KEYS = {
  data_dir: key.optional(
    key.text({
      doc: 'Directory of providers, spool and receipts. Required unless amnesia is enabled, which ignores it.',
    }),
  ),
  'interop.work': key.integer({
    default: 512,
    min: 4,
    max: 65_536,
    doc: 'Requests that wait for a worker: a quarter each for reads and `/put`, half for webhooks. More get 429.',
  }),
  'interop.broadcast': key.integer({
    default: 1024,
    min: 16,
    max: 65_536,
    doc: 'Events that a slow subscriber may lag behind before it loses the oldest.',
  }),
  'interop.read_workers': key.integer({ default: 64, min: 1, max: 1024, doc: 'Concurrent reads from storage.' }),
  'interop.put_workers': key.integer({ default: 128, min: 1, max: 1024, doc: 'Concurrent `/put` requests.' }),
  'interop.put_bytes_max': key.size({
    default: '64GiB',
    min: '1MiB',
    max: '5TiB',
    doc: 'The largest body of `/put`. With a content coding: 10 MiB decoded.',
  }),
  'interop.kms_capability_file': key.optional(
    key.text({
      doc: 'File, mode 0600, with the capability to wrap secrets and sign receipts in the tenant interop. Required for webhooks with kms.',
    }),
  ),
  'interop.mailbox_url': key.optional(
    key.text({ doc: 'The mailbox of this node, `unix:PATH`. Default: none; webhooks get 503.' }),
  ),
  'interop.mailbox_capability_file': key.optional(
    key.text({
      doc: 'File, mode 0600, with the capability to send to topics below `hooks.`. Required with interop.mailbox_url.',
    }),
  ),
  'interop.storage_url': key.optional(
    key.text({ doc: 'The storage of this node, `unix:PATH`. Default: none; `/put` and `/o` get 503.' }),
  ),
  'interop.passport_capability_file': key.optional(
    key.text({ doc: 'File, mode 0600, with the capability to exchange tokens of clients. Required for `/put`.' }),
  ),
};

const WEBHOOK_KEYS = {
  'webhooks.address_rps': key.integer({
    default: 500,
    min: 1,
    max: 1_000_000,
    doc: 'Webhook requests per second from one address, valid or not. The networks of a provider share one such limit.',
    reloadable: true,
  }),
  'webhooks.unverified_bytes': key.size({
    default: '64MiB',
    min: '4MiB',
    max: '16GiB',
    doc: 'Memory for bodies whose signature is not verified yet; beyond it, webhooks get 429. Addresses in no network of the provider hold three quarters together and an eighth each.',
  }),
  'webhooks.tolerance': key.duration({
    default: '5m',
    min: '1s',
    max: '1h',
    doc: 'How far the signed time of a webhook may differ from the clock.',
    reloadable: true,
  }),
  'secrets.cache': key.boolean({
    default: true,
    doc: 'Whether secrets are also sealed in data_dir, so that webhooks are verified after a start without kms.',
  }),
};

const BROWNOUT_KEYS = {
  'brownout.error_rate': key.decimal({
    default: 0.01,
    min: 0.0001,
    max: 0.99,
    doc: 'Share of failed calls to an upstream above which a brownout begins. It ends below half of it.',
  }),
  'brownout.window': key.duration({
    default: '5m',
    min: '1s',
    max: '1h',
    doc: 'The time over which errors are counted.',
  }),
  'brownout.p95': key.duration({
    default: '500ms',
    min: '10ms',
    max: '1m',
    doc: 'The p95 latency of an upstream in one minute at which a brownout begins. It ends below four fifths of it.',
  }),
  'brownout.dwell': key.duration({
    default: '30s',
    min: '100ms',
    max: '1h',
    doc: 'The shortest brownout, and how long the upstream must be healthy before it ends.',
  }),
};

const SPOOL_KEYS = {
  'spool.bytes_max': key.size({
    default: '1GiB',
    min: '8MiB',
    max: '1TiB',
    doc: 'Disk space for verified webhooks while mailbox is away. One provider takes at most half.',
  }),
  'spool.deliveries_max': key.integer({
    default: 100_000,
    min: 2,
    max: 10_000_000,
    doc: 'Webhooks in the spool. One provider takes at most half.',
  }),
  'spool.after': key.duration({
    default: '250ms',
    min: '1ms',
    max: '5s',
    doc: 'How long mailbox may take before a webhook is spooled.',
    reloadable: true,
  }),
};

const RECEIPT_KEYS = {
  'receipts.max_age': key.duration({
    default: '90d',
    min: '1h',
    max: '3660d',
    doc: 'How long signed receipts are kept, if `receipts.max_bytes` allows it.',
  }),
  'receipts.max_bytes': key.size({
    default: '2GiB',
    min: '8MiB',
    max: '1TiB',
    doc: 'Bounds the receipts: about 250 are kept for each MiB, 500 000 at 2 GiB. Their index takes 1 % of it in memory and fills first: receipts take about a tenth of it on disk, at most all of it. The oldest signed ones are removed first.',
  }),
};

const STATE_KEYS = {
  'audit.sink': key.oneOf(['file', 'stdout', 'memory'], {
    default: 'file',
    doc: 'Where audit events go: `audit.log` in data_dir, standard output, or memory. Memory keeps the recent deliveries only: changes by operators are then in the log of the service, without their subject. Amnesia forces memory.',
  }),
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep all state in memory and write nothing to disk.' }),
  'amnesia.bytes_max': key.size({
    default: '64MiB',
    min: '8MiB',
    max: '1TiB',
    doc: 'Memory for receipts in amnesia: about 170 are kept for each MiB.',
  }),
};

const READ_KEYS = {
  'auth.reads': key.boolean({ default: false, doc: 'Whether reads of objects need the scope interop:get.' }),
};

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  'server.max_rps': key.integer({
    default: 500,
    min: 1,
    max: 1_000_000,
    doc: 'Verified webhooks and authorized `/put` requests per second; more get 429.',
  }),
  ...INTEROP_KEYS,
  ...WEBHOOK_KEYS,
  ...BROWNOUT_KEYS,
  ...SPOOL_KEYS,
  ...RECEIPT_KEYS,
  ...STATE_KEYS,
  ...READ_KEYS,
  ...AUTH_KEYS,
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  checkPassportKeys(config, report);
  const { interop, amnesia } = config;
  if (!config.secrets.cache && !amnesia.enabled && !wrapsSecrets(config))
    report(
      'secrets.cache',
      'true, because no kms wraps secrets: auth.kms_url and interop.kms_capability_file are not both set',
    );
  if (config.data_dir === undefined && !amnesia.enabled)
    report('data_dir', 'a directory, unless amnesia.enabled is set');
  if (interop.mailbox_url !== undefined) {
    if (interop.mailbox_capability_file === undefined)
      report('interop.mailbox_capability_file', 'a file with a capability, because interop.mailbox_url is set');
    if (!isPrivate(interop.mailbox_url, undefined))
      report('interop.mailbox_url', 'unix:PATH: another user could receive the capability');
  }
  if (interop.storage_url !== undefined && !isPrivate(interop.storage_url, undefined))
    report('interop.storage_url', 'unix:PATH: another user could receive the capabilities of clients');
});

export type InteropConfig = ConfigOf<typeof schema>;

/** Whether kms wraps the secrets of providers. Otherwise they are only sealed in data_dir. */
function wrapsSecrets({ auth, interop }: Pick<InteropConfig, 'auth' | 'interop'>): boolean {
  return auth.kms_url !== undefined && interop.kms_capability_file !== undefined;
}
