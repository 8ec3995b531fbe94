/** The configuration of a witness: the keys of the listener, of the process and its own. */
import { defineConfig, key } from '@ron/config';
import { checkIngressKeys, INGRESS_KEYS, parseBind } from '@ron/ingress';
import { PROCESS_KEYS } from '@ron/service';

const KEYS = {
  ...PROCESS_KEYS,
  ...INGRESS_KEYS,
  'witness.dir': key.text({ doc: 'Directory of the key of the witness and of the last checkpoint of each log.' }),
  'witness.logs': key.list({
    default: [],
    items_max: 256,
    length_max: 4096,
    expects: 'verification keys of logs',
    doc: 'Verification keys of the logs, as `/audit/keys` of kms lists them.',
  }),
  'witness.name': key.optional(
    key.text({ doc: 'The name of the witness in its signatures. Default: the stored one, or a random one.' }),
  ),
};

export const schema = defineConfig(KEYS, (config, report) => {
  checkIngressKeys(config, report);
  if (config.witness.logs.length === 0) report('witness.logs', 'at least one verification key');
  // A client without TLS cannot tell the witness from another server, whose refusal would stop kms from signing.
  if (config.tls.cert_file === undefined && !isLocal(config.server.bind))
    report('tls.cert_file', 'a certificate, because server.bind is reachable from other machines');
});

function isLocal(bind: string): boolean {
  try {
    const target = parseBind(bind);
    return target.kind === 'unix' || target.loopback;
  } catch {
    // Reported by checkIngressKeys.
    return true;
  }
}
