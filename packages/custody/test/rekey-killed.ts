/** Replaces the key of a store, and kills itself after the named step: `DIR CURRENT NEXT STEP`. */
import { rekeyStore } from '../src/store/index.ts';

const [dir = '', current = '', next = '', step] = process.argv.slice(2);
await rekeyStore({
  dir,
  current: { kek: Buffer.from(current, 'hex') },
  next: { kek: Buffer.from(next, 'hex') },
  switchTo: () => Promise.resolve(),
  onStep: (done) => {
    if (done === step) process.kill(process.pid, 'SIGKILL');
  },
  signal: new AbortController().signal,
});
