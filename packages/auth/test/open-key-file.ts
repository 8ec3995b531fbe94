/** A child process that opens a key file on request and reports the keys. */
import { FileKeySource } from '../src/index.ts';
import { signal } from './support.ts';

process.on('message', (order: { path: string; rounds: number }) => {
  void open(order).then(
    (keys) => process.send?.(keys),
    (error: unknown) => process.send?.([String(error)]),
  );
});
process.send?.('ready');

async function open({ path, rounds }: { path: string; rounds: number }): Promise<string[]> {
  const found: string[] = [];
  for (let round = 0; round < rounds; round++) {
    await using keys = await FileKeySource.open({ path: `${path}${round}` }, signal);
    const { key_id, key } = await keys.current('storage', signal);
    found.push(`${key_id} ${Buffer.from(key).toString('hex')}`);
  }
  return found;
}
