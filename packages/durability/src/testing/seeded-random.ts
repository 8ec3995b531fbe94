/** Replaces the random source of `sched` by a seeded generator, so that volume ids and placement repeat in every run. */
import { installSched, sched } from '@ron/kernel';

/** Numbers in [0, 1) from a linear congruential generator. */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

/** Dispose it to restore the previous source. */
export function installSeededRandom(seed: number): Disposable {
  const random = randomFrom(seed);
  const randomBytes = (count: number): Uint8Array<ArrayBuffer> =>
    Uint8Array.from({ length: count }, () => Math.floor(random() * 256));
  const previous = installSched({ ...sched, random, randomBytes });
  return { [Symbol.dispose]: () => void installSched(previous) };
}
