import assert from 'node:assert/strict';
import { test } from 'node:test';
import { texts, withMailbox } from './support.ts';

test('[mailbox I-6] visible messages are delivered in the order of their sends', async () => {
  await withMailbox(async ({ clock, advance, send, receive, nack }) => {
    clock.chances = [0];
    for (const text of ['a', 'b', 'c']) await send(text);
    await send('late', { delay_ms: 1000 });
    await send('d');
    const [a] = await receive({ max: 1 });
    await nack(a!, { delay_ms: 0 });
    assert.deepEqual(texts(await receive({ max: 2 })), ['a', 'b'], 'a returned message keeps its place');
    await advance(1000);
    assert.deepEqual(texts(await receive()), ['c', 'late', 'd']);
  });
});

test('[mailbox I-6] of one key, one message at a time and in order; other keys pass', async () => {
  await withMailbox(async ({ advance, reopen, send, receive, nack, ack }) => {
    for (const [text, key] of [
      ['x1', 'x'],
      ['x2', 'x'],
      ['y1', 'y'],
      ['x3', 'x'],
      ['free', undefined],
    ] as const)
      await send(text, key === undefined ? {} : { key });
    const first = await receive();
    assert.deepEqual(texts(first), ['x1', 'y1', 'free']);
    assert.deepEqual(await receive(), []);
    await nack(first[0]!, { delay_ms: 10_000 });
    assert.deepEqual(await receive(), [], 'a delayed message holds back those of its key');
    await reopen();
    assert.deepEqual(await receive(), [], 'also after a restart');
    await advance(10_000);
    const [again] = await receive();
    assert.deepEqual(texts([again!]), ['x1']);
    await nack(again!, { dead: true });
    const [x2] = await receive();
    assert.deepEqual(texts([x2!]), ['x2'], 'a dead letter releases its key');
    await ack(x2!);
    assert.deepEqual(texts(await receive()), ['x3']);
  });
});
