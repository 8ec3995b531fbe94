/**
 * The descriptor of a provider, from the flags of `ron hooks add`.
 *
 * Contract: a known provider keeps each setting whose flag is absent, so a forgotten flag never lifts a restriction.
 */
import {
  HOOKS_PREFIX,
  INTEROP_LIMITS,
  SCHEMES,
  type Descriptor,
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

/** Interop checks the values: networks, origins, headers and the template. `before` is the known provider. */
export function providerInit(values: HooksValues, before?: Descriptor): ProviderInit {
  const { rps, inflight } = values;
  const scheme = values.scheme === undefined && before !== undefined ? before.scheme : schemeArg(values.scheme);
  const topic = topicOf(values.topic) ?? before?.topic;
  const networks = listOf(values, 'network', 'any-network', INTEROP_LIMITS.networks) ?? before?.networks;
  const origins = listOf(values, 'origin', 'no-origins', INTEROP_LIMITS.origins) ?? before?.origins;
  const limits = {
    ...before?.limits,
    ...(rps !== undefined && { rps: numberArg('--rps', rps, 1, INTEROP_LIMITS.rps_max) }),
    ...(inflight !== undefined && { inflight: numberArg('--inflight', inflight, 1, INTEROP_LIMITS.inflight_max) }),
  };
  const generic = genericOf(scheme, values, before?.generic);
  return {
    scheme,
    ...(topic !== undefined && { topic }),
    ...(networks !== undefined && { networks }),
    ...(origins !== undefined && { origins }),
    ...(Object.keys(limits).length > 0 && { limits }),
    ...(generic !== undefined && { generic }),
  };
}

function topicOf(text: string | undefined): string | undefined {
  if (text === undefined || topicArg(text).startsWith(HOOKS_PREFIX)) return text;
  throw fault(`the topic must begin with ${HOOKS_PREFIX}`);
}

/** The values of a repeatable flag, none with its reset flag, undefined without both. */
function listOf(
  values: HooksValues,
  flag: 'network' | 'origin',
  reset: 'any-network' | 'no-origins',
  max: number,
): readonly string[] | undefined {
  const list = values[flag];
  if (list !== undefined && list.length > max) throw fault(`--${flag}: at most ${max} are allowed`);
  if (values[reset] !== true) return list;
  if (list !== undefined) throw fault(`Specify --${flag} or --${reset}, not both`);
  return [];
}

function schemeArg(text: string | undefined): SchemeName {
  const scheme = SCHEMES.find((each) => each === text);
  if (scheme !== undefined) return scheme;
  throw fault(`--scheme must be one of ${SCHEMES.join(', ')}`);
}

function genericOf(
  scheme: SchemeName,
  values: HooksValues,
  before: GenericScheme | undefined,
): GenericScheme | undefined {
  const given = GENERIC_FLAGS.filter((flag) => values[flag] !== undefined);
  if (scheme !== 'generic') {
    if (given.length > 0) throw fault(`--${given[0]} is only for the scheme generic`);
    return undefined;
  }
  const { template = before?.template ?? '{body}' } = values;
  const signature_header = values['signature-header'] ?? before?.signature_header;
  const prefix = values.prefix ?? before?.prefix;
  const timestamp_header = values['timestamp-header'] ?? before?.timestamp_header;
  const id_header = values['id-header'] ?? before?.id_header;
  if (signature_header === undefined) throw fault('--signature-header is required for the scheme generic');
  return {
    template,
    signature_header,
    encoding: oneOf('--encoding', values.encoding ?? before?.encoding, ['hex', 'base64'] as const),
    algorithm: oneOf('--algorithm', values.algorithm ?? before?.algorithm, ['sha256', 'sha512'] as const),
    ...(isSet(prefix) && { prefix }),
    ...(isSet(timestamp_header) && { timestamp_header }),
    ...(isSet(id_header) && { id_header }),
  };
}

/** An empty value removes a setting. */
const isSet = (text: string | undefined): text is string => text !== undefined && text !== '';

/** The first word is the default. */
function oneOf<W extends string>(flag: string, text: string | undefined, words: readonly [W, ...W[]]): W {
  const word = text === undefined ? words[0] : words.find((each) => each === text);
  if (word !== undefined) return word;
  throw fault(`${flag} must be one of ${words.join(', ')}`);
}

const fault = (message: string): Error => usage({ name: 'hooks' }, message);
