/** `ron unpin`: removes a pin. */
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { addressArg, withStorage } from '../storage.ts';

export default command({
  name: 'unpin',
  usage: 'unpin ADDRESS',
  about: 'Removes the pin of an object. Storage may reclaim the object later.',
  options: CONNECTION_OPTIONS,
  args: [1, 1],
  examples: { 'ron unpin b3:...': 'remove the pin' },
  async run({ values, args, io, signal }) {
    const address = addressArg(args[0]);
    await withStorage(values, io, signal, async (client) => await client.unpin(address));
    io.result(`unpinned ${address}`, { address, pinned: false });
  },
});
