/** `ron pin`: pins an object. */
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { addressArg, withStorage } from '../storage.ts';

export default command({
  name: 'pin',
  usage: 'pin ADDRESS',
  about: 'Keeps an object when storage reclaims space. Pinning is idempotent.',
  options: CONNECTION_OPTIONS,
  args: [1, 1],
  examples: { 'ron pin b3:...': 'keep the object' },
  async run({ values, args, io, signal }) {
    const address = addressArg(args[0]);
    await withStorage(values, io, signal, async (client) => await client.pin(address));
    io.result(`pinned ${address}`, { address, pinned: true });
  },
});
