/** The configuration of passport: the listener's keys, the process's keys and its own, named as operators know them. */
import { AUTH_KEYS, checkAuthKeys } from '@ron/auth/service';
import { defineConfig, key } from '@ron/config';
import { PROCESS_KEYS } from '@ron/service';
import type { ConfigOf } from '@ron/config';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';
import { isScope } from '@ron/proto';

/** It is the one that others hear of revocations from. */
const { 'auth.passport_url': _url, 'auth.revocations_max_age': _age, ...OWN_AUTH_KEYS } = AUTH_KEYS;

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  data_dir: key.optional(
    key.text({ doc: 'Where revocations are kept. Needed unless amnesia is on, which ignores it.' }),
  ),
  'passport.ttl_default': key.duration({
    default: '1h',
    min: '1s',
    max: '366d',
    doc: 'How long a capability is good when its request does not say.',
    reloadable: true,
  }),
  'passport.ttl_max': key.duration({
    default: '30d',
    min: '1s',
    max: '366d',
    doc: 'No capability is issued for longer; what asks for more gets this.',
    reloadable: true,
  }),
  'passport.never_issue': key.list({
    default: ['kms:derive', 'passport:issue', 'passport:revoke'],
    items_max: 64,
    expects: 'scope',
    doc: 'Scopes that are not issued here: with these a holder could issue capabilities himself.',
    reloadable: true,
  }),
  'passport.issue_deadline': key.duration({
    default: '2s',
    min: '10ms',
    max: '1m',
    doc: 'Issuing, verifying or revoking, from request to answer.',
    reloadable: true,
  }),
  ...OWN_AUTH_KEYS,
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep everything in memory and write to no disk.' }),
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  const { passport, amnesia } = config;
  if (config.data_dir === undefined && !amnesia.enabled)
    report('data_dir', 'a directory, unless amnesia.enabled is set');
  if (passport.ttl_default > passport.ttl_max) report('passport.ttl_default', 'at most passport.ttl_max');
  if (!passport.never_issue.every(isScope)) report('passport.never_issue', 'scopes');
});

export type PassportConfig = ConfigOf<typeof schema>;
