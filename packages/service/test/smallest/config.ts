/** The configuration of the smallest service: the keys of every service, and one of its own. */
import { AUTH_KEYS, checkAuthKeys, checkPassportKeys } from '@ron/auth/service';
import { defineConfig, key, type ConfigOf } from '@ron/config';
import { checkIngressKeys, INGRESS_KEYS } from '@ron/ingress';
import { PROCESS_KEYS } from '@ron/service';

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  ...AUTH_KEYS,
  'amnesia.enabled': key.boolean({ default: true, doc: 'Keep everything in memory and write to no disk.' }),
  'index.greeting': key.text({ default: 'hello', doc: 'The text that /greeting answers.', reloadable: true }),
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  checkAuthKeys(config, report);
  checkPassportKeys(config, report);
});

export type SmallestConfig = ConfigOf<typeof schema>;
