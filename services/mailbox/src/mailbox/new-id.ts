/** New ULIDs as bytes: 6 of Unix time in milliseconds, 10 random ones. */
import { sched } from '@ron/kernel';

const ID_BYTES = 16;
const RANDOM_BYTES = 10;
const POOL_BYTES = 4000;
const TIME_MS_MAX = 2 ** 48 - 1;

/** Bound: one pool of random bytes. */
export class NewIds {
  #pool: Uint8Array = new Uint8Array(0);
  #used = 0;

  next(wall_ms: number): Uint8Array {
    if (this.#used + RANDOM_BYTES > this.#pool.length) {
      this.#pool = sched.randomBytes(POOL_BYTES);
      this.#used = 0;
    }
    const id = Buffer.allocUnsafe(ID_BYTES);
    id.writeUIntBE(Math.min(Math.max(0, Math.floor(wall_ms)), TIME_MS_MAX), 0, 6);
    id.set(this.#pool.subarray(this.#used, this.#used + RANDOM_BYTES), 6);
    this.#used += RANDOM_BYTES;
    return id;
  }
}

/** Random numbers of 32 bits for the tokens of deliveries. Bound: one pool of random bytes. */
export class Nonces {
  #pool: Buffer = Buffer.alloc(0);
  #used = 0;

  next(): number {
    if (this.#used + 4 > this.#pool.length) {
      const { buffer, byteOffset, byteLength } = sched.randomBytes(POOL_BYTES);
      this.#pool = Buffer.from(buffer, byteOffset, byteLength);
      this.#used = 0;
    }
    this.#used += 4;
    return this.#pool.readUInt32BE(this.#used - 4);
  }
}
