/** `ron unpin`. */
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { addressArg, withStorage } from '../storage.ts';

export default command({
  name: 'unpin',
  usage: 'unpin ADDRESS',
  about: 'Takes the pin of an object away. The object stays until storage reclaims space.',
  options: CONNECTION_OPTIONS,
  args: [1, 1],
  examples: { 'ron unpin b3:...': 'let it go' },
  async run({ values, args, io, signal }) {
    const address = addressArg(args[0]);
    await withStorage(values, io, signal, async (client) => await client.unpin(address));
    io.result(`unpinned ${address}`, { address, pinned: false });
  },
});
