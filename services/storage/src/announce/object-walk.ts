/**
 * The position of the announcer in a circular walk over all objects, in order of their addresses.
 *
 *     walk.request();
 *     for (let step = walk.begin(); step !== undefined; step = walk.begin()) {
 *       const ids = await list(step.after, count);
 *       walk.advance(ids.length < count ? undefined : ids.at(-1));
 *     }
 *
 * Contract: every address is listed after the last `request`. A walk begins at the current position, wraps around once and
 * ends where it began, so that the position may come from an earlier process. A request during a step extends the walk to
 * the end of that step, because the listing may be older than the request.
 */

/** An address as 32 bytes; undefined is before the first. */
export type Position = Buffer | undefined;

export class ObjectWalk {
  #position: Position;
  /** Where the current walk began. */
  #origin: Position;
  #isRequested = true;
  #isWalking = false;
  #isWrapped = false;
  /** Complete walks. */
  completed_total = 0;

  constructor(position: Position) {
    this.#position = position;
  }

  get position(): Position {
    return this.#position;
  }

  get isDue(): boolean {
    return this.#isRequested || this.#isWalking;
  }

  /** Requests that every object be listed again. */
  request(): void {
    this.#isRequested = true;
  }

  /** The next step; undefined when no walk is due. */
  begin(): { readonly after: Position } | undefined {
    if (this.#isRequested) {
      this.#isRequested = false;
      this.#isWalking = true;
      this.#isWrapped = false;
      this.#origin = this.#position;
    }
    return this.#isWalking ? { after: this.#position } : undefined;
  }

  /** Ends a step: all objects up to `position` were handled; undefined: up to the last. A failed step is begun again. */
  advance(position: Position): void {
    this.#position = position;
    // The second end of the list: the objects after the origin are gone.
    const isOver = this.#isWrapped && (position === undefined || isReached(this.#origin, position));
    if (position === undefined) this.#isWrapped = true;
    if (!isOver && !(this.#isWrapped && this.#origin === undefined)) return;
    this.#isWalking = false;
    this.completed_total += 1;
  }
}

const isReached = (origin: Position, position: Buffer): boolean =>
  origin === undefined || Buffer.compare(position, origin) >= 0;
