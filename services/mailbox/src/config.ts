/** The configuration of mailbox: the keys of the listener, of the process and its own. */
import { AUTH_KEYS, checkAuthKeys, checkPassportKeys } from '@ron/auth/service';
import { defineConfig, key, type ConfigOf } from '@ron/config';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';
import { PROCESS_KEYS } from '@ron/service';

const MAILBOX_KEYS = {
  data_dir: key.optional(
    key.text({ doc: 'Directory of the messages. Required unless amnesia is enabled, which ignores it.' }),
  ),
  'mailbox.auto_topics': key.boolean({
    default: true,
    doc: 'Whether the first send to a topic creates it. Otherwise only PUT /v1/mailbox/{topic} does.',
    reloadable: true,
  }),
  'mailbox.segment_bytes': key.size({
    default: '64MiB',
    min: '4MiB',
    max: '1GiB',
    doc: 'Size of a segment file. Disk space is freed one segment at a time.',
  }),
  'mailbox.send_workers': key.integer({ default: 64, min: 1, max: 256, doc: 'Sends that are executed at a time.' }),
  'mailbox.settle_workers': key.integer({
    default: 64,
    min: 1,
    max: 256,
    doc: 'Receives, acks, nacks and extends that are executed at a time.',
  }),
  'mailbox.holds_max': key.integer({
    default: 256,
    min: 1,
    max: 4096,
    doc: 'Long polls that wait at a time; further ones get 429.',
  }),
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep all state in memory and write nothing to disk.' }),
  'amnesia.bytes_max': key.size({
    default: '256MiB',
    min: '8MiB',
    max: '1TiB',
    doc: 'Memory for messages in amnesia.',
  }),
};

/** The bounds of each field of a policy, in the configuration and in `PUT /v1/mailbox/{topic}`. */
export const POLICY_BOUNDS = {
  max_messages: { min: 1, max: 16_000_000 },
  max_bytes: { min: '1KiB', max: '16TiB' },
  max_age: { min: '1s', max: '366d' },
  max_deliveries: { min: 1, max: 1000 },
  window: { min: '1s', max: '7d' },
  dead_max_age: { min: '1s', max: '366d' },
  dead_max_messages: { min: 1, max: 1_000_000 },
  dead_max_bytes: { min: '1KiB', max: '16TiB' },
} as const;

/** The policy of a topic without a policy of its own. */
const TOPIC_KEYS = {
  'topics.max_messages': key.integer({
    default: 1_000_000,
    ...POLICY_BOUNDS.max_messages,
    doc: 'Most waiting messages of a topic; further sends get 507.',
    reloadable: true,
  }),
  'topics.max_bytes': key.size({
    default: '4GiB',
    ...POLICY_BOUNDS.max_bytes,
    doc: 'Most payload bytes of the waiting messages of a topic; further sends get 507.',
    reloadable: true,
  }),
  'topics.max_age': key.duration({
    default: '7d',
    ...POLICY_BOUNDS.max_age,
    doc: 'Age at which a message becomes a dead letter (`expired`).',
    reloadable: true,
  }),
  'topics.max_deliveries': key.integer({
    default: 12,
    ...POLICY_BOUNDS.max_deliveries,
    doc: 'Failed deliveries after which a message becomes a dead letter.',
    reloadable: true,
  }),
  'topics.window': key.duration({
    default: '5m',
    ...POLICY_BOUNDS.window,
    doc: 'How long an idempotency key is remembered.',
    reloadable: true,
  }),
  'topics.hooks_window': key.duration({
    default: '24h',
    ...POLICY_BOUNDS.window,
    doc: 'The same for topics below `hooks.`.',
    reloadable: true,
  }),
  'topics.dead_max_age': key.duration({
    default: '14d',
    ...POLICY_BOUNDS.dead_max_age,
    doc: 'Age at which a dead letter is dropped.',
    reloadable: true,
  }),
  'topics.dead_max_messages': key.integer({
    default: 100_000,
    ...POLICY_BOUNDS.dead_max_messages,
    doc: 'Most dead letters of a topic; beyond that, the oldest are dropped.',
    reloadable: true,
  }),
  'topics.dead_max_bytes': key.size({
    default: '1GiB',
    ...POLICY_BOUNDS.dead_max_bytes,
    doc: 'Most payload bytes of the dead letters of a topic; beyond that, the oldest are dropped.',
    reloadable: true,
  }),
};

const KEYS = { ...PROCESS_KEYS, ...INGRESS_KEYS, ...MAILBOX_KEYS, ...TOPIC_KEYS, ...AUTH_KEYS };

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  checkPassportKeys(config, report);
  if (config.data_dir === undefined && !config.amnesia.enabled)
    report('data_dir', 'a directory, unless amnesia.enabled is set');
});

export type MailboxConfig = ConfigOf<typeof schema>;
