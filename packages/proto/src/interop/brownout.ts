/** The brownout of interop: its mode, and the figures of each upstream. */

export type BrownoutMode = 'auto' | 'on' | 'off';

export interface BrownoutRequest {
  readonly mode: BrownoutMode;
  /** When the mode ends and `auto` returns. Required unless the mode is `auto`. */
  readonly until_ms?: number;
  readonly why?: string;
}

/** The upstreams that the brownout sentinel watches. */
export const BROWNOUT_UPSTREAMS = ['storage', 'mailbox', 'passport'] as const;
export type BrownoutUpstream = (typeof BROWNOUT_UPSTREAMS)[number];
export type UpstreamName = BrownoutUpstream | 'kms';

export interface UpstreamDto {
  readonly upstream: BrownoutUpstream;
  /** Whether the sentinel found it unhealthy. */
  readonly active: boolean;
  /** Whether work for it is shed: by the sentinel, or by the mode. */
  readonly sheds: boolean;
  /** The share of failed calls; absent without calls. */
  readonly error_rate?: number;
  /** A brownout begins above it; while one is active, it ends at or below it. */
  readonly error_rate_limit: number;
  readonly p95_ms?: number;
  /** A brownout begins at it; while one is active, it ends below it. */
  readonly p95_limit_ms: number;
  readonly breaker: string;
}

export interface BrownoutDto extends BrownoutRequest {
  /** Whether work for any upstream is shed. */
  readonly active: boolean;
  readonly upstreams: readonly UpstreamDto[];
}
