/** The limits of interop. */

const KIB = 1024;
const MIB = 1024 * KIB;

export const INTEROP_LIMITS = {
  webhook_bytes: MIB,
  /** Chunks of a streamed `/put`. */
  chunk_bytes: 64 * KIB,
  providers: 256,
  /** Live secrets of a provider. */
  secrets: 2,
  /** Signatures in one request. */
  signatures: 4,
  secret_bytes_min: 16,
  secret_bytes_max: 512,
  networks: 64,
  origins: 16,
  origin_chars: 256,
  /** Of one provider. */
  rps_max: 10_000,
  inflight_max: 1024,
  /** How long a rotated secret stays valid by default, and at most. */
  overlap_ms: 24 * 3_600_000,
  overlap_ms_max: 30 * 24 * 3_600_000,
  /** Recent deliveries of each kind, accepted and refused. */
  deliveries: 5000,
  deliveries_page: 500,
  /** The longest time that a manual brownout mode can be set for. */
  brownout_ms: 24 * 3_600_000,
  brownout_why_chars: 256,
} as const;
