/** The configuration of passport: the keys of the listener, of the process and its own. */
import { AUTH_KEYS, checkAuthKeys } from '@ron/auth/service';
import { defineConfig, key } from '@ron/config';
import { PROCESS_KEYS } from '@ron/service';
import type { ConfigOf } from '@ron/config';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';
import { isScope } from '@ron/proto';

/** Passport is the source of revocations for the other services. */
const {
  'auth.passport_url': _url,
  'auth.passport_pin': _pin,
  'auth.revocations_max_age': _age,
  ...OWN_AUTH_KEYS
} = AUTH_KEYS;

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  data_dir: key.optional(
    key.text({ doc: 'Directory of the revocations. Required unless amnesia is enabled, which ignores it.' }),
  ),
  'passport.ttl_default': key.duration({
    default: '1h',
    min: '1s',
    max: '366d',
    doc: 'Lifetime of a capability whose request states none.',
    reloadable: true,
  }),
  'passport.ttl_max': key.duration({
    default: '30d',
    min: '1s',
    max: '366d',
    doc: 'Maximum lifetime of a capability; longer requests are clamped to it.',
    reloadable: true,
  }),
  'passport.never_issue': key.list({
    default: ['kms:audience', 'kms:audit', 'kms:log', 'passport:exchange', 'passport:issue', 'passport:revoke'],
    items_max: 64,
    expects: 'scope',
    doc: 'Scopes that are never issued: their holder could issue or revoke capabilities, forge entries of passport, or prune the audit log. `passport:exchange` is never issued, even if it is not listed.',
    reloadable: true,
  }),
  'passport.log_capability_file': key.optional(
    key.text({
      doc: 'File, mode 0600, with the capability to append to the audit log of kms (kms:log). Required with auth.kms_url.',
    }),
  ),
  'passport.issue_deadline': key.duration({
    default: '2s',
    min: '10ms',
    max: '1m',
    doc: 'Deadline of issuing, verifying and revoking, from request to response.',
    reloadable: true,
  }),
  ...OWN_AUTH_KEYS,
  'amnesia.enabled': key.boolean({ default: false, doc: 'Keep all state in memory and write nothing to disk.' }),
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  const { passport, amnesia } = config;
  if (config.data_dir === undefined && !amnesia.enabled)
    report('data_dir', 'a directory, unless amnesia.enabled is set');
  if (config.auth.kms_url !== undefined && passport.log_capability_file === undefined)
    report('passport.log_capability_file', 'a file with a capability, because auth.kms_url is set');
  if (passport.ttl_default > passport.ttl_max) report('passport.ttl_default', 'at most passport.ttl_max');
  if (!passport.never_issue.every(isScope)) report('passport.never_issue', 'scopes');
});

export type PassportConfig = ConfigOf<typeof schema>;
