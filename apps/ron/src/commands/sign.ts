/** `ron sign`: writes a signature file. */
import { writeFile } from 'node:fs/promises';
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { CliError, systemCode } from '../exits.ts';
import { hashOfFile, onlySigningKey, withKms } from '../kms.ts';
import type { SignatureFile } from '../verify/signature-file.ts';

const options = {
  key: { type: 'string', value: 'KID', doc: 'The key. Default: the only signing key.' },
  output: { type: 'string', short: 'o', value: 'FILE', doc: 'The signature file to write. Default: FILE.sig.' },
  ...CONNECTION_OPTIONS,
} as const;

export default command({
  name: 'sign',
  usage: 'sign FILE [--key KID]',
  about:
    'Signs the BLAKE3 hash of a file with the current version of a key, and writes the signature as JSON. Only the hash is\n' +
    'sent to kms. The signed text is `ron-kms/v1`, the kid and the hash, one per line, so OpenSSL can verify it too.',
  options,
  args: [1, 1],
  examples: {
    'ron sign report.pdf': 'write report.pdf.sig',
    'ron sign report.pdf --key acme/docs/ed25519/... -o sig.json': 'choose the key and the output',
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
      throw new CliError('no_output', `cannot write ${output} (${systemCode(error)})`);
    }
    io.result(output, { file: output, ...file });
  },
});
