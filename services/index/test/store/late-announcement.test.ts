import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RonError } from '@ron/kernel';
import { announce, type Announced } from '../../src/routes/announce.ts';
import { addressOf, openStore } from './support.ts';

test('an announcement that failed and took effect is provided and outdates answers, also those of objects it withdrew', async () => {
  await using store = await openStore(undefined);
  let isLate = true;
  const late = {
    epoch: '1',
    announce: async (...given: Parameters<typeof store.announce>) => {
      const announced = await store.announce(...given);
      if (isLate) throw new RonError('timeout', 'the index database does not answer');
      return announced;
    },
  };
  const told: Announced[] = [];
  let uncertain = 0;
  const init = {
    store: late,
    onAnnounced: (each: Announced) => void told.push(each),
    onUncertain: () => void (uncertain += 1),
  };
  const address = addressOf('new');
  const body = { entries: [{ address, size: 1, media_type: 'text/plain' }], range: { after: null, through: null } };
  const call = () => announce(init, { body, grant: { subject: 'storage' } as never });
  await assert.rejects(call(), { code: 'timeout' });
  isLate = false;
  await call();
  assert.deepEqual(
    told.map(({ added }) => added),
    [[address], [address]],
  );
  assert.equal(uncertain, 1);
  await call();
  assert.deepEqual([told.at(-1)!.added, uncertain], [[], 1]);
});
