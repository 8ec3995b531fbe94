/** `ron verify`: verifies the signature of a file. */
import { command, CONNECTION_OPTIONS } from '../command.ts';
import { CliError } from '../exits.ts';
import { hashOfFile, readSignature, withKms } from '../kms.ts';

const options = {
  signature: { type: 'string', short: 's', value: 'FILE', doc: 'The signature. Default: FILE.sig.' },
  key: {
    type: 'string',
    value: 'KID',
    doc: 'The key that must have signed. Default: the one that the signature names.',
  },
  mode: {
    type: 'string',
    value: 'MODE',
    doc: 'or, and, pq_only; never weaker than the mode of the key. Default: the mode of the key.',
  },
  ...CONNECTION_OPTIONS,
} as const;

const MODES = ['or', 'and', 'pq_only'] as const;
type Mode = (typeof MODES)[number];

export default command({
  name: 'verify',
  usage: 'verify FILE [--signature FILE]',
  about:
    'Verifies a signature of `ron sign` and prints the key. Exits with 65 if the file was changed, the signature is invalid,\n' +
    'or the key is not the one given with --key.',
  options,
  args: [1, 1],
  examples: {
    'ron verify report.pdf': 'verify with report.pdf.sig',
    'ron verify report.pdf --key acme/docs/ed25519/...': 'accept only this key, in any version',
  },
  async run({ values, args: [path], io, signal }) {
    const signature = await readSignature(values.signature ?? `${path}.sig`);
    const { kid, sigs } = signature;
    const mode = modeArg(values.mode);
    if (values.key !== undefined && kid !== values.key && !kid.startsWith(`${values.key}#`)) {
      throw new CliError('data', `signed by ${kid}, not by ${values.key}`);
    }
    const payload_b3 = await hashOfFile(path!, signal);
    if (payload_b3 !== signature.payload_b3) throw new CliError('data', `${path} is not the file that was signed`);
    const { ok, details } = await withKms(values, io, signal, (client) =>
      client.verify({ kid, payload_b3, sigs, mode }),
    );
    if (!ok) throw new CliError('data', `invalid signature: ${details.reason ?? 'no reason given'}`);
    io.result(`valid: ${kid} (${details.checked.map(({ alg }) => alg).join(', ')})`, { ok, kid, ...details });
  },
});

function modeArg(text: string | undefined): Mode | undefined {
  if (text === undefined) return undefined;
  const mode = MODES.find((each) => each === text);
  if (mode !== undefined) return mode;
  throw new CliError('usage', `--mode must be one of ${MODES.join(', ')}, not ${JSON.stringify(text)}`);
}
