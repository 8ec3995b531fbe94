/** A message whose body is damaged on disk stays a dead letter: no receiver gets other bytes, not even by a replay. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CrashFileSystem } from '@ron/log/testing';
import { NEVER } from '@ron/kernel';
import { Compactor, type CompactorEvent } from '../../src/store/compaction/compactor.ts';
import { stored, texts, TOPIC, withMailbox, type TestBox } from './support.ts';

const BODY = 'pay 100 EUR to Bob';

/** Changes a byte of the body of a message on disk. */
function damage(disk: CrashFileSystem, { box }: TestBox, seq: number): void {
  const { state, log } = box.parts;
  const { segment, offset } = state.view(state.find(seq)).place;
  disk.damage(log.segments.files.path(segment), (bytes) => bytes.with(offset + 64 + 3, 0xee));
}

async function compact({ box }: TestBox): Promise<CompactorEvent[]> {
  const events: CompactorEvent[] = [];
  const { log, live } = box.parts;
  await new Compactor({ log, live, onEvent: (event) => void events.push(event) }).compactOldest(NEVER);
  return events;
}

/** No replay delivers the message, neither now nor after a compaction and a restart. */
async function requireUndeliverable(mail: TestBox, seq: number): Promise<void> {
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(await mail.box.replayDead(TOPIC, { limit: 10 }, NEVER), { replayed: 0, left: 1 });
    const { dead } = await mail.box.deadLetters(TOPIC, 0, 10, NEVER);
    assert.deepEqual(
      dead.map((each) => [each.seq, each.reason]),
      [[seq, 'damaged']],
    );
    assert.deepEqual(texts(await mail.receive()), round === 0 ? ['second'] : []);
    await mail.reopen();
  }
}

for (const kind of ['waiting message', 'dead letter'] as const) {
  test(`a ${kind} with a damaged body is not delivered after a compaction`, async () => {
    const disk = new CrashFileSystem();
    await withMailbox(
      async (mail) => {
        const { seq } = stored(await mail.send(BODY));
        if (kind === 'dead letter') {
          const [message] = await mail.receive();
          await mail.nack(message!, { dead: true, error: 'no' });
        }
        await mail.send('second');
        damage(disk, mail, seq);
        const events = await compact(mail);
        const reported = [...events, ...mail.events].filter((event) => event.kind === 'message damaged');
        assert.deepEqual(
          reported.map((event) => event.seq),
          [seq],
        );
        await requireUndeliverable(mail, seq);
      },
      {},
      { fs: disk },
    );
  });
}

test('a damaged body is counted and reported once; another dead letter is not counted as damage', async () => {
  const disk = new CrashFileSystem();
  const counted: string[] = [];
  await withMailbox(
    async (mail) => {
      const nacked = stored(await mail.send('nacked'));
      const [message] = await mail.receive();
      await mail.nack(message!, { dead: true });
      assert.deepEqual(counted, []);
      const damaged = stored(await mail.send(BODY));
      damage(disk, mail, damaged.seq);
      assert.deepEqual(await mail.receive(), []);
      await mail.box.parts.background.drained();
      assert.deepEqual(counted, ['damaged']);
      assert.deepEqual(
        mail.events.filter(({ kind }) => kind.startsWith('message')),
        [
          { kind: 'messages are dead', topic: TOPIC, reason: 'nacked', count: 1, ids: [nacked.id] },
          { kind: 'messages are dead', topic: TOPIC, reason: 'damaged', count: 1, ids: [damaged.id] },
          { kind: 'message damaged', topic: TOPIC, id: damaged.id, seq: damaged.seq },
        ],
      );
    },
    {},
    { fs: disk, onIntegrity: (reason) => void counted.push(reason) },
  );
});
