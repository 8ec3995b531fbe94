import { bytesOf } from '@ron/testkit';
import { addressOf, type Reply } from '@ron/testkit/service';
/**
 * The allowed answers of storage after a history of acknowledged operations.
 *
 * An acknowledged object has to be there until its lease has run out and a compaction has run. An operation that was
 * not acknowledged may have happened or not. A wrong byte is always a violation.
 */
import { CONTENT_BYTES, tolerance, UPLOAD_SIZES, type Profile } from './plan.ts';

export class Violation extends Error {}

export interface Content {
  readonly name: string;
  readonly bytes: Buffer;
  readonly address: string;
}

function contentOf(name: string, size: number, seed: number): Content {
  const bytes = bytesOf(size, seed);
  return { name, bytes, address: addressOf(bytes) };
}

/** The same for all histories: making them takes longer than storing them. */
export const CONTENTS: readonly Content[] = CONTENT_BYTES.map((size, index) =>
  contentOf(`content ${index}`, size, index + 1),
);
export const UPLOADED: readonly Content[] = UPLOAD_SIZES.map((size, index) =>
  contentOf(`the object of upload ${index}`, size, index + 101),
);

/**
 * `present`: acknowledged. `doubtful`: a put that was not acknowledged, or a lease that has run out before a compaction.
 * `removed`: was acknowledged, expired, and has been answered with 404.
 */
type Existence = 'absent' | 'present' | 'doubtful' | 'removed';

interface ObjectState {
  existence: Existence;
  isPinned: 'yes' | 'no' | 'maybe';
  /** No later than the start of the lease. */
  renewed_ms: number;
}

export interface UploadState {
  readonly content: Content;
  /** Empty until the creation was acknowledged. */
  path: string;
  /** The largest offset that was acknowledged. */
  offset: number;
}

/** Seconds are the unit of a lease on disk. */
const LEASE_ROUNDING_MS = 1100;

export class Model {
  readonly #profile: Profile;
  readonly #objects = new Map<string, ObjectState>();
  readonly uploads: (UploadState | undefined)[] = UPLOADED.map(() => undefined);

  constructor(profile: Profile) {
    this.#profile = profile;
  }

  /** Whether every acknowledged object has to be readable while so many directories are away. */
  mustServe(away: number): boolean {
    return away <= tolerance(this.#profile);
  }

  /** Whether a write has to be acknowledged while so many directories are away. */
  mustStore(away: number): boolean {
    return this.#profile.dirs - away >= this.#profile.write_min;
  }

  stateOf(content: Content): ObjectState {
    const state = this.#objects.get(content.address) ?? { existence: 'absent', isPinned: 'no', renewed_ms: 0 };
    this.#objects.set(content.address, state);
    return state;
  }

  /** Contents that were ever sent. */
  get known(): Content[] {
    return [...CONTENTS, ...UPLOADED].filter(({ address }) => this.#objects.has(address));
  }

  stored(content: Content, sent_ms: number): void {
    const state = this.stateOf(content);
    state.existence = 'present';
    state.renewed_ms = Math.max(state.renewed_ms, sent_ms);
  }

  /** A write was sent and not acknowledged. */
  maybeStored(content: Content): void {
    const state = this.stateOf(content);
    if (state.existence === 'present') return;
    state.existence = 'doubtful';
    // It may take effect at any later time, so a 404 proves nothing from now on.
    state.renewed_ms = 0;
  }

  pinned(content: Content): void {
    const state = this.stateOf(content);
    state.existence = 'present';
    state.isPinned = 'yes';
  }

  /** A compaction ran, up to now, perhaps not to its end. */
  compacted(now_ms: number): void {
    const { lease_ms } = this.#profile;
    if (lease_ms === undefined) return;
    for (const state of this.#objects.values()) {
      const isOver = now_ms + LEASE_ROUNDING_MS > state.renewed_ms + lease_ms;
      if (state.existence === 'present' && state.isPinned !== 'yes' && isOver) state.existence = 'doubtful';
    }
  }

  /** Throws a violation unless the answer to a GET is allowed. */
  checkRead(content: Content, reply: Reply, away: number): void {
    const state = this.stateOf(content);
    const { name } = content;
    const seen = `${reply.status} ${reply.text.slice(0, 200)}`;
    if (reply.status === 200) {
      if (!reply.body.equals(content.bytes)) throw new Violation(`${name}: wrong bytes`);
      if (state.existence === 'absent') throw new Violation(`${name} was never stored, and is served`);
      if (state.existence === 'removed') throw new Violation(`${name} was removed, and is served again`);
      return;
    }
    if (reply.status === 503 && !this.mustServe(away)) return;
    if (state.existence === 'present') throw new Violation(`${name} was acknowledged, ${away} away: ${seen}`);
    if (reply.status !== 404 && reply.status !== 503) throw new Violation(`${name} (${state.existence}): ${seen}`);
    const wasAcknowledged = state.renewed_ms > 0;
    if (reply.status === 404 && away === 0 && wasAcknowledged && state.existence === 'doubtful') {
      state.existence = 'removed';
      state.isPinned = 'no';
    }
  }
}
