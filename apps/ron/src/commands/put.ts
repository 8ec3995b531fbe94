/** `ron put`: stores a file or standard input as an object. */
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { labelArg } from '../names/name-arg.ts';
import { servicesOf } from '../names/node-services.ts';
import { putFile } from '../put-file.ts';

const options = {
  type: {
    type: 'string',
    value: 'TYPE',
    doc: 'The media type. Default: the stored one, or application/octet-stream for a new object.',
  },
  name: {
    type: 'string',
    value: 'LABEL',
    doc: 'Publish the address under this name, as `ron name set` does. --url still names storage.',
  },
  state: {
    type: 'string',
    value: 'DIR',
    doc: 'The directory with the URLs of unfinished uploads. Default ~/.cache/ron/uploads.',
  },
  ...CONNECTION_OPTIONS,
} as const;

export default command({
  name: 'put',
  usage: 'put FILE|- [--type TYPE] [--name LABEL]',
  about:
    'Stores a file, or standard input with -, and prints its address once it is on disk. The address is verified against\n' +
    'the local file. After an interruption, run the same command again: the upload of a file resumes where it stopped.',
  options,
  args: [1, 1],
  examples: {
    'ron put photo.jpg --type image/jpeg': 'print its address, b3:...',
    'ron put index.html --name site/home': 'store it, and publish its address under a name',
    'tar c docs | ron put -': 'store standard input',
    'ron put big.iso --json': '{"address":"b3:...","size":...}',
  },
  async run(invocation) {
    const { values, args, io } = invocation;
    const label = values.name === undefined ? undefined : labelArg(values.name);
    const services = servicesOf(invocation, 'storage');
    const { type: media_type, state: state_dir } = values;
    const receipt = await putFile(args[0]!, { io, media_type, state_dir, withStorage: services.storage });
    if (label === undefined) return io.result(receipt.address, receipt);
    const { setName, nameJson } = await import('../names/set-name.ts');
    const name = await setName({ label, address: receipt.address }, services, io);
    io.note(`${label} is published, seq ${name.record.seq}`);
    return io.result(receipt.address, { ...receipt, name: nameJson(name) });
  },
});
