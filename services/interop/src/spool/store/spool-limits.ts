/**
 * The limits of the spool, on disk and in memory.
 *
 *     0                               room                     bytes_max - segment        bytes_max
 *     | deliveries                      | settled records         | moves of one segment     |
 *
 * Contract: the log never takes more than `bytes_max`. Deliveries leave two segments free. Settled records may use the first
 * of them. The second belongs to the moves of one segment: it is removed afterwards, so space that was settled can always
 * be freed, and one waiting delivery does not keep others on the disk.
 */

export interface SpoolLimits {
  readonly bytes_max: number;
  readonly deliveries_max: number;
  readonly segment_bytes: number;
  /** Of deliveries. */
  readonly room_bytes: number;
  readonly provider_bytes_max: number;
  readonly provider_deliveries_max: number;
}

const MIB = 1024 * 1024;
const SEGMENTS = 64;
/** Holds one delivery of the greatest size. */
const SEGMENT_BYTES_MIN = 1.25 * MIB;
/** The index has four bytes for an offset. */
const SEGMENT_BYTES_MAX = 1024 * MIB;

export interface SpoolLimitsInit {
  readonly bytes_max: number;
  readonly deliveries_max: number;
  /** Default: a 64th of `bytes_max`, at least 1.25 MiB. */
  readonly segment_bytes?: number | undefined;
}

export function spoolLimits({ bytes_max, deliveries_max, segment_bytes }: SpoolLimitsInit): SpoolLimits {
  const wanted = Math.floor(bytes_max / SEGMENTS);
  const segment = segment_bytes ?? Math.min(SEGMENT_BYTES_MAX, Math.max(SEGMENT_BYTES_MIN, wanted));
  const room_bytes = bytes_max - 2 * segment;
  return {
    bytes_max,
    deliveries_max,
    segment_bytes: segment,
    room_bytes,
    provider_bytes_max: Math.floor(room_bytes / 2),
    provider_deliveries_max: Math.max(1, Math.floor(deliveries_max / 2)),
  };
}
