/** The explanation of an asset as text. */
import type { EdgeFreshnessDto, EdgeWhyDto } from '@ron/proto';
import { columns, humanSize } from '../format.ts';

type Row = [string, string];

const FILLABLE: Readonly<Record<EdgeWhyDto['fillable'], string>> = {
  yes: 'a request fetches it',
  not_allowed: 'a request is refused: the mode is offline, or the origin is not in fill.allow',
  amnesia: 'a request is refused: amnesia.fill is "refuse"',
  no_storage: 'a request is refused: edge.storage_url is not set',
  not_fillable: 'a request gets 404',
};

const TIERS: Readonly<Record<EdgeWhyDto['tier'], string>> = {
  pack: 'a pack',
  ram: 'memory',
  cas: 'disk',
  none: 'nowhere',
};

export function whyText(why: EdgeWhyDto): string {
  const { key, tier, state, address, size, media_type, pack, freshness, provenance } = why;
  const rows: Row[] = [
    ['key', key],
    ['served from', tier === 'none' ? `${TIERS.none}: ${FILLABLE[why.fillable]}` : `${TIERS[tier]}, ${state}`],
  ];
  if (pack !== null) rows.push(['pack', `${pack.name}, ${pack.format}, ${pack.address}`]);
  if (address !== null) rows.push(['address', address]);
  if (size !== null) rows.push(['size', `${humanSize(size)}, ${media_type ?? 'type unknown'}`]);
  if (freshness !== null) rows.push(...freshnessRows(freshness));
  if (provenance !== null) {
    const { host, dialled, certificate_key, etag, time_ms } = provenance;
    rows.push(
      ['host', host],
      ['dialled', dialled],
      ['certificate key', `sha256 ${certificate_key}`],
      ['etag', etag ?? 'none'],
      ['fetched', new Date(time_ms).toISOString()],
      ['fill log', logText(why)],
    );
  }
  return columns(rows);
}

function freshnessRows(freshness: EdgeFreshnessDto): Row[] {
  const { is_fresh, age_s, lifetime_s, lifetime_from, must_revalidate } = freshness;
  const { apparent_age_s, age_header_s, response_delay_s, resident_time_s } = freshness;
  const revalidates = must_revalidate ? ', never served stale' : '';
  const rows: Row[] = [
    [
      'freshness',
      `${is_fresh ? 'fresh' : 'stale'}: age ${age_s} s of ${lifetime_s} s (${lifetime_from})${revalidates}`,
    ],
    [
      'age',
      `max(${round(apparent_age_s)}, ${round(age_header_s)} + ${round(response_delay_s)}) + ${round(resident_time_s)} s` +
        ' = max(apparent age, Age + response delay) + time here',
    ],
  ];
  const headers = [
    ['Cache-Control', freshness.cache_control],
    ['Expires', freshness.expires],
    ['Date', freshness.date],
    ['Last-Modified', freshness.last_modified],
  ] as const;
  for (const [name, value] of headers) if (value !== null) rows.push(['origin', `${name}: ${value}`]);
  return rows;
}

/** To milliseconds. */
const round = (time_s: number): number => Math.round(time_s * 1000) / 1000;

function logText({ provenance, proof, proof_problem }: EdgeWhyDto): string {
  const entry = provenance?.log_index === null ? 'not in this log' : `entry ${provenance?.log_index}`;
  if (proof !== undefined) return `${entry}, with a proof (--json prints it)`;
  return `${entry}, ${proof_problem ?? 'no checkpoint covers it yet'}`;
}
