/**
 * The descriptor of a provider: its checks and its defaults.
 *
 * Contract: an accepted descriptor has one spelling of each value and no further fields. Throws `validation` that names the
 * field. The same check runs when a stored descriptor is loaded.
 * Bound: `INTEROP_LIMITS`.
 */
import { parseNetwork } from '@ron/auth';
import { RonError } from '@ron/kernel';
import {
  HOOKS_PREFIX,
  INTEROP_LIMITS,
  isTopic,
  PROVIDER_PATTERN,
  SCHEMES,
  type Descriptor,
  type GenericScheme,
  type ProviderInit,
} from '@ron/proto';
import { requireGeneric } from '../signatures/generic-template.ts';

const PROVIDER_DEFAULTS = { rps: 100, inflight: 64 } as const;

const NAME = new RegExp(PROVIDER_PATTERN);
const { networks: networks_max, origins: origins_max, origin_chars, rps_max, inflight_max } = INTEROP_LIMITS;

export function requireDescriptor(name: string, init: ProviderInit): Descriptor {
  const { scheme, topic = `${HOOKS_PREFIX}${name}`, networks = [], origins = [], limits = {} } = init;
  if (!NAME.test(name)) refuse('the name has 1 to 32 lower-case letters, digits and _');
  if (!SCHEMES.includes(scheme)) refuse(`scheme must be one of ${SCHEMES.join(', ')}`);
  if (!isTopic(topic) || !topic.startsWith(HOOKS_PREFIX)) refuse(`topic must be a topic below ${HOOKS_PREFIX}`);
  requireList(
    'networks',
    networks,
    networks_max,
    (text) => parseNetwork(text) !== undefined,
    'a network such as 192.0.2.0/24, without host bits',
  );
  requireList('origins', origins, origins_max, isOrigin, 'an origin such as https://app.example, without a path');
  const { rps = PROVIDER_DEFAULTS.rps, inflight = PROVIDER_DEFAULTS.inflight } = limits;
  requireCount('limits.rps', rps, rps_max);
  requireCount('limits.inflight', inflight, inflight_max);
  const generic = genericOf(init);
  return {
    name,
    scheme,
    topic,
    networks: [...networks],
    origins: [...origins],
    limits: { rps, inflight },
    ...(generic !== undefined && { generic }),
  };
}

/** Stands for the descriptor of a provider whose file and catalog entry are both lost. Its provider is closed. */
export function unknownDescriptor(name: string): Descriptor {
  const { rps, inflight } = PROVIDER_DEFAULTS;
  return {
    name,
    scheme: 'generic',
    topic: `${HOOKS_PREFIX}${name}`,
    networks: [],
    origins: [],
    limits: { rps, inflight },
  };
}

function genericOf({ scheme, generic }: ProviderInit): GenericScheme | undefined {
  if (scheme !== 'generic') {
    if (generic !== undefined) refuse('generic is only for the scheme generic');
    return undefined;
  }
  if (generic === undefined) refuse('generic is required for the scheme generic');
  requireGeneric(generic);
  const { template, signature_header, prefix, encoding, algorithm, timestamp_header, id_header } = generic;
  return {
    template,
    signature_header,
    encoding,
    algorithm,
    ...(prefix !== undefined && { prefix }),
    ...(timestamp_header !== undefined && { timestamp_header }),
    ...(id_header !== undefined && { id_header }),
  };
}

function requireList(
  field: string,
  texts: readonly string[],
  count_max: number,
  isValid: (text: string) => boolean,
  expected: string,
): void {
  if (texts.length > count_max) refuse(`${field} has more than ${count_max} entries`);
  for (const [at, text] of texts.entries()) {
    if (!isValid(text)) refuse(`${field}/${at} must be ${expected}`);
  }
  if (new Set(texts).size !== texts.length) refuse(`${field} has an entry twice`);
}

function requireCount(field: string, value: number, value_max: number): void {
  if (!Number.isInteger(value) || value < 1 || value > value_max)
    refuse(`${field} must be an integer from 1 to ${value_max}`);
}

/** As browsers spell it: no path, no trailing slash, no default port, in lower case. */
function isOrigin(text: string): boolean {
  if (text.length > origin_chars || !URL.canParse(text)) return false;
  const { protocol, origin } = new URL(text);
  return (protocol === 'https:' || protocol === 'http:') && origin === text;
}

function refuse(message: string): never {
  throw new RonError('validation', message);
}
