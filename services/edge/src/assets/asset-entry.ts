/** An asset in memory with its prepared answer, and the tier that its answers are counted under. */
import { chooseVariant, FastEntry, type RamSource } from '@ron/ingress';
import type { AccessFacts } from '@ron/proto';
import type { HitTier } from './cache-status.ts';

export class AssetEntry extends FastEntry {
  readonly tier: HitTier;

  constructor(source: RamSource, tier: HitTier, facts?: AccessFacts) {
    super(source, facts);
    this.tier = tier;
  }

  /** Undefined for a client that prefers the tile without its coding: the route decodes it. */
  override accepted(header: string | undefined): FastEntry | undefined {
    const { encoding } = this;
    if (encoding === undefined) return this;
    return chooseVariant([{ encoding }, {}], header)?.encoding === undefined ? undefined : this;
  }
}

/** The memory of an entry besides its bytes: prepared headers, map entries and metadata. */
const ENTRY_OVERHEAD_BYTES = 2048;

/** Small bodies are also kept as text. */
export const costOf = ({ source, text_bytes }: FastEntry): number => source.size + text_bytes + ENTRY_OVERHEAD_BYTES;
