/**
 * The file in which storage records the volumes of a node; `ron up` and `ron doctor` read it.
 *
 * A start without `data_dirs` uses the recorded directories, so that a node never starts empty because of a missing flag.
 */
export interface KnownVolume {
  /** The volume's UUID. */
  readonly id: string;
  /** Its item of `data_dirs` when it was last open: an absolute directory and its options. */
  readonly item: string;
}

export const KNOWN_VOLUMES_BYTES_MAX = 256 * 1024;
const VERSION = 1;

export const formatKnownVolumes = (volumes: readonly KnownVolume[]): string =>
  `${JSON.stringify({ version: VERSION, volumes }, undefined, 2)}\n`;

/** Undefined when the text is not valid or of a later version. */
export function parseKnownVolumes(text: string): KnownVolume[] | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { version, volumes } = (value ?? {}) as { version?: unknown; volumes?: unknown };
  if (version !== VERSION || !Array.isArray(volumes)) return undefined;
  return volumes.every(isKnownVolume) ? volumes.map(({ id, item }) => ({ id, item })) : undefined;
}

function isKnownVolume(value: unknown): value is KnownVolume {
  const { id, item } = (value ?? {}) as Partial<Record<keyof KnownVolume, unknown>>;
  return typeof id === 'string' && typeof item === 'string' && id !== '' && item !== '';
}
