/** `ron stat`: prints the metadata of an object. */
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { columns, humanSize } from '../format.ts';
import { addressArg, withStorage } from '../storage.ts';

export default command({
  name: 'stat',
  usage: 'stat ADDRESS',
  about: 'Prints the size and media type of an object, as storage states them.',
  options: CONNECTION_OPTIONS,
  args: [1, 1],
  examples: {
    'ron stat b3:...': 'print a table',
    'ron stat b3:... --json': '{"address":...,"size":...,"media_type":...}',
  },
  async run({ values, args, io, signal }) {
    const address = addressArg(args[0]);
    const info = await withStorage(values, io, signal, async (client) => await client.stat(address));
    const human = info.size < 1024 ? '' : ` (${humanSize(info.size)})`;
    const rows = [
      ['address', info.address],
      ['size', `${info.size} bytes${human}`],
      ['type', info.media_type],
    ] as const;
    io.result(columns(rows), info);
  },
});
