/** `ron sign`: a signature of a file, beside it. */
import { writeFile } from 'node:fs/promises';
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { CliError, systemCode } from '../exits.ts';
import { hashOfFile, onlySigningKey, withKms, type SignatureFile } from '../kms.ts';

const options = {
  key: { type: 'string', value: 'KID', doc: 'The key. Default: the only one that signs.' },
  output: { type: 'string', short: 'o', value: 'FILE', doc: 'Where the signature goes. Default: FILE.sig.' },
  ...CONNECTION_OPTIONS,
} as const;

export default command({
  name: 'sign',
  usage: 'sign FILE [--key KID]',
  about:
    'Signs the BLAKE3 hash of a file with the current version of a key, and writes the signature as JSON. The file stays\n' +
    'here: only its hash goes to kms. What is signed is the text `ron-kms/v1`, the kid and the hash, a line each, so that\n' +
    'OpenSSL can check it too.',
  options,
  args: [1, 1],
  examples: {
    'ron sign report.pdf': 'writes report.pdf.sig',
    'ron sign report.pdf --key acme/docs/ed25519/... -o sig.json': 'with this key, to this file',
  },
  async run({ values, args: [path], io, signal }) {
    const payload_b3 = await hashOfFile(path!, signal);
    const signed = await withKms(values, io, signal, async (client) => {
      const kid = values.key ?? (await onlySigningKey(client)).kid;
      return await client.sign({ kid, payload_b3 });
    });
    const { kid, sigs, log_index } = signed;
    const file: SignatureFile = { kid, payload_b3, sigs, ...(log_index === undefined ? {} : { log_index }) };
    const output = values.output ?? `${path}.sig`;
    try {
      await writeFile(output, `${JSON.stringify(file, undefined, 2)}\n`);
    } catch (error) {
      throw new CliError('no_output', `${output} cannot be written (${systemCode(error)})`);
    }
    io.result(output, { file: output, ...file });
  },
});
