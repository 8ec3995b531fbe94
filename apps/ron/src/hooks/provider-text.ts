/** Providers as text. */
import type { Descriptor, WebhookProviderDto, SecretDto } from '@ron/proto';
import { columns, humanDuration, table } from '../format.ts';
import { dateOf } from '../names/show-name.ts';
import { counted } from '../queue/mailbox-service.ts';

export function providerTable(providers: readonly WebhookProviderDto[], now_ms: number): string {
  if (providers.length === 0) return 'no providers yet: add one with `ron hooks add`';
  const head = ['PROVIDER', 'SCHEME', 'TOPIC', 'SECRETS', 'VERIFIED', 'STATE'];
  const rows = providers.map(({ name, scheme, topic, secrets, problem }) => [
    name,
    scheme,
    topic,
    secrets.map((each) => secretShort(each, now_ms)).join('; '),
    String(secrets.reduce((sum, { uses }) => sum + uses, 0)),
    problem === undefined ? 'accepts' : `closed: ${problem}`,
  ]);
  return table(head, rows);
}

function secretShort({ version, ends_ms, problem }: SecretDto, now_ms: number): string {
  const end = ends_ms === undefined ? '' : ` for ${humanDuration(Math.max(0, ends_ms - now_ms))} more`;
  return `v${version}${end}${problem === undefined ? '' : ' (not loaded)'}`;
}

export function providerText(provider: WebhookProviderDto, now_ms: number): string {
  const { name, secrets, problem } = provider;
  return columns([
    ['provider', name],
    ['state', problem === undefined ? 'accepts webhooks' : `closed: ${problem}`],
    ...settingsOf(provider),
    ...secrets.map((each): [string, string] => [`secret v${each.version}`, secretText(each, now_ms)]),
  ]);
}

/** The settings that a change of a provider has changed, with their previous values. */
export function changedSettings(before: Descriptor, after: Descriptor): [string, string][] {
  const was = new Map(settingsOf(before));
  const changed = settingsOf(after).filter(([name, text]) => was.get(name) !== text);
  return changed.map(([name, text]) => [name, `${text} (before: ${was.get(name)})`]);
}

function settingsOf(provider: Descriptor): [string, string][] {
  const { topic, networks, origins, limits } = provider;
  return [
    ['scheme', schemeText(provider)],
    ['topic', topic],
    ['networks', networks.length === 0 ? 'all' : networks.join(', ')],
    ['origins', origins.length === 0 ? 'none: a request with the Origin header is refused' : origins.join(', ')],
    ['limits', `${limits.rps}/s, ${limits.inflight} in process`],
  ];
}

function schemeText({ scheme, generic }: Descriptor): string {
  if (generic === undefined) return scheme;
  const { template, signature_header, prefix = '', encoding, algorithm, timestamp_header, id_header } = generic;
  const time = timestamp_header === undefined ? '' : `, {timestamp} in ${timestamp_header}`;
  const id = id_header === undefined ? '' : `, {id} in ${id_header}`;
  return `${scheme}: ${signature_header}: ${prefix}<${encoding} HMAC-${algorithm} of ${template}>${time}${id}`;
}

function secretText({ kind, created_ms, ends_ms, uses, last_used_ms, problem }: SecretDto, now_ms: number): string {
  const last = last_used_ms === undefined ? '' : `, last ${dateOf(last_used_ms / 1000)}`;
  const end = ends_ms === undefined ? '' : `, ends ${dateOf(ends_ms / 1000)}${ends_ms <= now_ms ? ' (ended)' : ''}`;
  const type = kind === 'ed25519' ? 'Ed25519 public key' : 'HMAC';
  const problems = problem === undefined ? '' : `, not loaded: ${problem}`;
  const used = `verified ${counted(uses, 'delivery', 'deliveries')} since the start of interop${last}`;
  return `${type}, since ${dateOf(created_ms / 1000)}${end}, ${used}${problems}`;
}
