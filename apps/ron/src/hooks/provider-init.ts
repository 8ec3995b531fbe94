/** The descriptor of a provider, from the flags of `ron hooks add`. */
import {
  HOOKS_PREFIX,
  INTEROP_LIMITS,
  SCHEMES,
  type GenericScheme,
  type ProviderInit,
  type SchemeName,
} from '@ron/proto';
import { usage } from '../args.ts';
import { numberArg } from '../quantity-args.ts';
import { topicArg } from '../queue/mailbox-service.ts';
import type { HooksInvocation } from './hooks-options.ts';

type HooksValues = HooksInvocation['values'];

/** The flags that describe the scheme `generic`. */
const GENERIC_FLAGS = [
  'template',
  'signature-header',
  'prefix',
  'encoding',
  'algorithm',
  'timestamp-header',
  'id-header',
] as const;

/** Interop checks the values: networks, origins, headers and the template. */
export function providerInit(values: HooksValues): ProviderInit {
  const { topic, network: networks, origin: origins, rps, inflight } = values;
  const scheme = schemeArg(values.scheme);
  if (topic !== undefined && !topicArg(topic).startsWith(HOOKS_PREFIX))
    throw fault(`the topic must begin with ${HOOKS_PREFIX}`);
  for (const [flag, list, max] of [
    ['--network', networks, INTEROP_LIMITS.networks],
    ['--origin', origins, INTEROP_LIMITS.origins],
  ] as const)
    if (list !== undefined && list.length > max) throw fault(`${flag}: at most ${max} are allowed`);
  const limits = {
    ...(rps !== undefined && { rps: numberArg('--rps', rps, 1, INTEROP_LIMITS.rps_max) }),
    ...(inflight !== undefined && { inflight: numberArg('--inflight', inflight, 1, INTEROP_LIMITS.inflight_max) }),
  };
  const generic = genericOf(scheme, values);
  return {
    scheme,
    ...(topic !== undefined && { topic }),
    ...(networks !== undefined && { networks }),
    ...(origins !== undefined && { origins }),
    ...(Object.keys(limits).length > 0 && { limits }),
    ...(generic !== undefined && { generic }),
  };
}

function schemeArg(text: string | undefined): SchemeName {
  const scheme = SCHEMES.find((each) => each === text);
  if (scheme !== undefined) return scheme;
  throw fault(`--scheme must be one of ${SCHEMES.join(', ')}`);
}

function genericOf(scheme: SchemeName, values: HooksValues): GenericScheme | undefined {
  const given = GENERIC_FLAGS.filter((flag) => values[flag] !== undefined);
  if (scheme !== 'generic') {
    if (given.length > 0) throw fault(`--${given[0]} is only for the scheme generic`);
    return undefined;
  }
  const { template = '{body}', 'signature-header': signature_header, prefix } = values;
  const { 'timestamp-header': timestamp_header, 'id-header': id_header } = values;
  if (signature_header === undefined) throw fault('--signature-header is required for the scheme generic');
  return {
    template,
    signature_header,
    encoding: oneOf('--encoding', values.encoding, ['hex', 'base64'] as const),
    algorithm: oneOf('--algorithm', values.algorithm, ['sha256', 'sha512'] as const),
    ...(prefix !== undefined && { prefix }),
    ...(timestamp_header !== undefined && { timestamp_header }),
    ...(id_header !== undefined && { id_header }),
  };
}

/** The first word is the default. */
function oneOf<W extends string>(flag: string, text: string | undefined, words: readonly [W, ...W[]]): W {
  const word = text === undefined ? words[0] : words.find((each) => each === text);
  if (word !== undefined) return word;
  throw fault(`${flag} must be one of ${words.join(', ')}`);
}

const fault = (message: string): Error => usage({ name: 'hooks' }, message);
