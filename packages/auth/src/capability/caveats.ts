/**
 * The caveats of a capability: first-party, text, `key op value` with one space on each side of the operator.
 *
 * Contract: `parseCaveat` never throws. It refuses unknown caveats, so a caveat that an old service does not
 * understand can only narrow. `parseCaveat` reads the output of `formatCaveat` back as the same value. Bound: a list
 * has at most `list_entries_max` entries, a caveat at most `caveat_bytes_max` bytes (enforced by the codec).
 *
 *   audience = storage              this service, no other
 *   scopes in storage:get,storage:put
 *   expires < 1767225600000         Unix milliseconds
 *   sent < 1767225600000            the same for one request: a client adds it when it sends the token
 *   address ^= b3:00ff              also name ^= and label ^=: the text begins with this
 *   tenant = acme
 *   bytes <= 1048576                of one request's body, decoded
 *   rate <= 10/s                    or 600/m: requests, with a burst of as many
 *   ip in 10.0.0.0/8,2001:db8::/32
 *   body = sha256:<64 hex>          or b3:<64 hex>: the hash of one request's body, decoded
 */
import { ADDRESS_PREFIX, isService } from '@ron/proto';
import type { Service } from '@ron/proto';
import { CAPABILITY_LIMITS as LIMITS } from './limits.ts';
import type { Decoded } from './macaroon.ts';
import { parseNetwork } from './networks.ts';
import type { Network } from './networks.ts';

export type BodyAlgorithm = 'sha256' | 'b3';

export interface PrefixCaveat {
  readonly key: 'address' | 'name' | 'label';
  readonly prefix: string;
}
export interface TenantCaveat {
  readonly key: 'tenant';
  readonly tenant: string;
}
export type FactCaveat = PrefixCaveat | TenantCaveat;

export interface RateCaveat {
  readonly key: 'rate';
  /** Requests per period, and the largest burst. */
  readonly count: number;
  readonly period_ms: 1000 | 60_000;
}
export interface BodyCaveat {
  readonly key: 'body';
  readonly algorithm: BodyAlgorithm;
  /** 64 lower-case hex digits. */
  readonly hex: string;
}

export type Caveat =
  | { readonly key: 'audience'; readonly service: Service }
  | { readonly key: 'scopes'; readonly scopes: readonly string[] }
  | { readonly key: 'expires' | 'sent'; readonly at_ms: number }
  | FactCaveat
  | { readonly key: 'bytes'; readonly body_bytes_max: number }
  | RateCaveat
  | { readonly key: 'ip'; readonly networks: readonly Network[] }
  | BodyCaveat;

type CaveatKey = Caveat['key'];
type Parse = (value: string) => Caveat | undefined;

const PREFIX_CHARS_MAX = 512;
const RATE_COUNT_MAX = 1_000_000;
const PERIODS = { s: 1000, m: 60_000 } as const;

/** By key: the operator, the expected value, and its parser. */
const GRAMMAR: Readonly<Record<CaveatKey, readonly [op: string, value: string, parse: Parse]>> = {
  audience: ['=', 'a service', (value) => (isService(value) ? { key: 'audience', service: value } : undefined)],
  scopes: ['in', 'scopes like storage:get, separated by commas', parseScopes],
  expires: ['<', 'Unix milliseconds', (value) => mapDefined(parseCount(value), (at_ms) => ({ key: 'expires', at_ms }))],
  sent: ['<', 'Unix milliseconds', (value) => mapDefined(parseCount(value), (at_ms) => ({ key: 'sent', at_ms }))],
  address: ['^=', '"b3:" and up to 64 lower-case hex digits', parseAddressPrefix],
  name: ['^=', 'the beginning of a name', (value) => (isPlainText(value) ? { key: 'name', prefix: value } : undefined)],
  label: [
    '^=',
    'the beginning of a label',
    (value) => (isPlainText(value) ? { key: 'label', prefix: value } : undefined),
  ],
  tenant: ['=', '1 to 64 letters, digits, ".", "_" or "-"', parseTenant],
  bytes: [
    '<=',
    'bytes',
    (value) => mapDefined(parseCount(value), (body_bytes_max) => ({ key: 'bytes', body_bytes_max })),
  ],
  rate: ['<=', 'requests per second or minute, like 10/s or 600/m', parseRate],
  ip: ['in', 'addresses or networks without host bits, separated by commas', parseIps],
  body: ['=', '"sha256:" or "b3:" and 64 lower-case hex digits', parseBody],
};

export function parseCaveat(text: string): Decoded<Caveat> {
  const [key = ''] = text.split(' ', 1);
  if (!isCaveatKey(key)) return { ok: false, reason: `unknown caveat ${quote(text)}` };
  const [op, wanted, parse] = GRAMMAR[key];
  const head = `${key} ${op} `;
  const caveat = text.startsWith(head) ? parse(text.slice(head.length)) : undefined;
  if (caveat !== undefined) return { ok: true, value: caveat };
  return { ok: false, reason: `malformed caveat ${quote(text)}; expected "${head}" and ${wanted}` };
}

export function formatCaveat(caveat: Caveat): string {
  return `${caveat.key} ${GRAMMAR[caveat.key][0]} ${formatValue(caveat)}`;
}

function formatValue(caveat: Caveat): string {
  switch (caveat.key) {
    case 'audience':
      return caveat.service;
    case 'scopes':
      return caveat.scopes.join(',');
    case 'expires':
    case 'sent':
      return String(caveat.at_ms);
    case 'address':
    case 'name':
    case 'label':
      return caveat.prefix;
    case 'tenant':
      return caveat.tenant;
    case 'bytes':
      return String(caveat.body_bytes_max);
    case 'rate':
      return `${caveat.count}/${caveat.period_ms === PERIODS.s ? 's' : 'm'}`;
    case 'ip':
      return caveat.networks.map((network) => network.text).join(',');
    case 'body':
      break;
  }
  return `${caveat.algorithm}:${caveat.hex}`;
}

export function isFactCaveat(caveat: Caveat): caveat is FactCaveat {
  return caveat.key === 'address' || caveat.key === 'name' || caveat.key === 'label' || caveat.key === 'tenant';
}

/** External text, safe to show: escaped and truncated. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 64 ? `${text.slice(0, 64)}...` : text);
}

function isCaveatKey(key: string): key is CaveatKey {
  return Object.hasOwn(GRAMMAR, key);
}

function mapDefined<T, R>(value: T | undefined, make: (value: T) => R): R | undefined {
  return value === undefined ? undefined : make(value);
}

/** An integer from 0, in its only spelling. */
function parseCount(value: string): number | undefined {
  if (!/^(0|[1-9][0-9]{0,15})$/.test(value)) return undefined;
  const count = Number(value);
  return Number.isSafeInteger(count) ? count : undefined;
}

function parseList(value: string): string[] | undefined {
  const entries = value.split(',', LIMITS.list_entries_max + 1);
  if (entries.length > LIMITS.list_entries_max || new Set(entries).size < entries.length) return undefined;
  return entries;
}

/** Only the form is checked: a scope of a newer version must not invalidate the others in the list. */
function parseScopes(value: string): Caveat | undefined {
  const scopes = parseList(value);
  if (scopes === undefined || !scopes.every((scope) => /^[a-z]{1,32}:[a-z]{1,32}$/.test(scope))) return undefined;
  return { key: 'scopes', scopes };
}

function parseAddressPrefix(value: string): Caveat | undefined {
  if (!value.startsWith(ADDRESS_PREFIX) || !/^b3:[0-9a-f]{0,64}$/.test(value)) return undefined;
  return { key: 'address', prefix: value };
}

/** Not empty, and without characters that a terminal or a log would hide or reorder. */
function isPlainText(value: string): boolean {
  if (value.length === 0 || value.length > PREFIX_CHARS_MAX || value.trim() !== value) return false;
  return value.isWellFormed() && !/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u.test(value);
}

function parseTenant(value: string): Caveat | undefined {
  return /^[A-Za-z0-9._-]{1,64}$/.test(value) ? { key: 'tenant', tenant: value } : undefined;
}

function parseRate(value: string): Caveat | undefined {
  const match = /^([1-9][0-9]{0,6})\/([sm])$/.exec(value);
  const count = Number(match?.[1]);
  if (match === null || count > RATE_COUNT_MAX) return undefined;
  return { key: 'rate', count, period_ms: match[2] === 's' ? PERIODS.s : PERIODS.m };
}

function parseIps(value: string): Caveat | undefined {
  const networks = parseList(value)?.map(parseNetwork);
  if (networks === undefined || !networks.every((network) => network !== undefined)) return undefined;
  return { key: 'ip', networks };
}

function parseBody(value: string): Caveat | undefined {
  const match = /^(sha256|b3):([0-9a-f]{64})$/.exec(value);
  if (match === null) return undefined;
  return { key: 'body', algorithm: match[1] === 'b3' ? 'b3' : 'sha256', hex: match[2] ?? '' };
}
