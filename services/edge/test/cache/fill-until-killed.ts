/** A program that fills a cache until it is killed. It prints the number of each asset once it is kept on disk. */
import { bodyOf, fill, forgetRam, keyOf, KIB, signal, startCache } from './support.ts';

const [dir, disk_bytes] = process.argv.slice(2) as [string, string];
const { cache } = await startCache({ dir, flags: [`--cache.disk_bytes=${disk_bytes}`] });

async function fillFrom(first: number): Promise<never> {
  for (let seed = first; ; seed += 4) {
    const size = seed % 10 === 0 ? 100 * KIB : 5 * KIB;
    await fill(cache, keyOf(seed), bodyOf(size, seed));
    forgetRam(cache);
    const isOnDisk = (await cache.find(keyOf(seed), signal))?.tier === 'cas';
    if (isOnDisk) process.stdout.write(`${seed}\n`);
    // The evictor has to make room.
    else await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

await Promise.all([0, 1, 2, 3].map(fillFrom));
