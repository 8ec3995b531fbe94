/** An asset in memory with its prepared answer, and the tier that its answers are counted under. */
import { chooseVariant, FastEntry, type RamSource } from '@ron/ingress';
import { sched } from '@ron/kernel';
import type { AccessFacts } from '@ron/proto';
import type { HitTier } from './cache-status.ts';

/** When an asset is fresh, by the wall clock (Unix ms). */
export interface FreshWindow {
  readonly from_ms: number;
  readonly until_ms: number;
}

export class AssetEntry extends FastEntry {
  readonly tier: HitTier;
  readonly #fresh: FreshWindow | undefined;

  /** `fresh`: undefined for an asset that is always fresh. */
  constructor(source: RamSource, tier: HitTier, facts?: AccessFacts, fresh?: FreshWindow) {
    super(source, facts);
    this.tier = tier;
    this.#fresh = fresh;
  }

  /** Whether it is fresh by the wall clock, which may have been set since. */
  get isFresh(): boolean {
    if (this.#fresh === undefined) return true;
    const now_ms = sched.wall_ms();
    return now_ms >= this.#fresh.from_ms && now_ms < this.#fresh.until_ms;
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
