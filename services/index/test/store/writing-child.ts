/** Applies changes of a log and announces objects, and reports each acknowledged step. See kill-nine-loses-nothing.test.ts. */
import { writeSync } from 'node:fs';
import { addressOf, NOW_MS, openStore, position, published } from './support.ts';

const store = await openStore(process.argv[2], {
  quotas: () => ({ providers_max: 1e9, providers_per_subject: 1e9, names_seen: 10 }),
});
for (let at = store.applied.size; ; at++) {
  const entries = Array.from({ length: 20 }, (_, index) => ({
    address: addressOf(`o${at} ${index}`),
    size: at,
    media_type: 'text/plain',
  }));
  await Promise.all([
    store.apply([published(`n${at % 7}`, at + 1)], position(at + 1)),
    store.announce('s', entries, [], NOW_MS),
  ]);
  writeSync(1, `${at}\n`);
}
