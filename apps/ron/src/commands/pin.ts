/** `ron pin`. */
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { addressArg, withStorage } from '../storage.ts';

export default command({
  name: 'pin',
  usage: 'pin ADDRESS',
  about: 'Keeps an object when storage reclaims space. Pinning twice is pinning once.',
  options: CONNECTION_OPTIONS,
  args: [1, 1],
  examples: { 'ron pin b3:...': 'keep it' },
  async run({ values, args, io, signal }) {
    const address = addressArg(args[0]);
    await withStorage(values, io, signal, async (client) => await client.pin(address));
    io.result(`pinned ${address}`, { address, pinned: true });
  },
});
