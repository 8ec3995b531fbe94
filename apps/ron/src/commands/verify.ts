/** `ron verify`: verifies that a key which the user trusts signed a file. */
import type { VerifyMode } from '@ron/proto';
import { splitKid } from '@ron/proto';
import { usage } from '../args.ts';
import { command, CONNECTION_OPTIONS, type Invocation } from '../command.ts';
import { CliError } from '../exits.ts';
import { homeOf } from '../home.ts';
import { hashOfFile, withKms } from '../kms.ts';
import { verifyOffline } from '../verify/offline.ts';
import { readPublicKeys } from '../verify/public-keys.ts';
import { readSignature, type SignatureFile } from '../verify/signature-file.ts';
import { covers, keysOfLines, readTrust, type TrustLine } from '../verify/trust-file.ts';

const options = {
  signature: { type: 'string', short: 's', value: 'FILE', doc: 'The signature. Default: FILE.sig.' },
  key: {
    type: 'string',
    value: 'KID',
    doc: 'The key that must have signed, in any version or in the one that it names.',
  },
  tenant: { type: 'string', value: 'NAME', doc: 'The tenant whose key must have signed.' },
  public: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    doc: 'The public key that must have signed, PEM or JWK; repeat it for a hybrid key. Needs no kms and no network.',
  },
  trust: {
    type: 'string',
    value: 'FILE',
    doc: 'A list of trusted keys. Default: RON_TRUST, or the file trust in the directory that --dir or RON_DIR names.',
  },
  mode: {
    type: 'string',
    value: 'MODE',
    doc: 'or, and, pq_only: the signatures of a hybrid key that must be valid; never weaker than the mode of the key in kms.',
  },
  ...CONNECTION_OPTIONS,
} as const;

type VerifyInvocation = Invocation<typeof options>;

const MODES = ['or', 'and', 'pq_only'] as const;

export default command({
  name: 'verify',
  usage: 'verify FILE --key KID | --tenant NAME | --public FILE... | --trust FILE',
  about:
    'Verifies a signature of `ron sign` against a key that you trust. A signature names its own key, which proves nothing:\n' +
    'say whose signature you expect. Several conditions must all hold. Exits with 65 if the file was changed, the signature\n' +
    'is invalid, or another key signed. A trust file has one line per key: its kid, or a prefix of kids that ends with /,\n' +
    'then its public key in base64 (`ron keys export --format trust`). Lines without a public key are verified by kms.',
  options,
  args: [1, 1],
  examples: {
    'ron verify report.pdf --tenant acme': 'accept the keys of acme in kms',
    'ron verify report.pdf --key acme/docs/ed25519/...': 'accept only this key, in any version',
    'ron verify report.pdf --public acme.pem': 'accept only the key in the file, without kms',
    'ron verify report.pdf --trust signers': 'accept the keys in the list',
  },
  async run(invocation) {
    const { values, args, io, signal } = invocation;
    const [path] = args as [string];
    const signature = await readSignature(values.signature ?? `${path}.sig`);
    const mode = modeArg(values.mode);
    const lines = await trustLines(invocation, signature);
    requireClaim(values, signature);
    const payload_b3 = await hashOfFile(path, signal);
    if (payload_b3 !== signature.payload_b3) throw new CliError('data', `${path} is not the file that was signed`);
    if (values.public !== undefined) return await withPublicKeys(invocation, values.public, signature, mode);
    const checked = lines === undefined ? undefined : verifiedByLine(lines, signature, mode);
    if (checked !== undefined) return printValid(io, signature.kid, checked);
    return await withService(invocation, signature, mode);
  },
});

type Values = VerifyInvocation['values'];

/** The lines that cover the key; undefined if the other options decide. Throws if nothing says which key is trusted. */
async function trustLines(
  { values, io }: VerifyInvocation,
  { kid }: SignatureFile,
): Promise<readonly TrustLine[] | undefined> {
  const { key, tenant, public: files, trust } = values;
  if (files !== undefined && trust !== undefined)
    throw usage({ name: 'verify' }, '--public and --trust exclude each other');
  const hasCondition = key !== undefined || tenant !== undefined || files !== undefined;
  if (trust === undefined && hasCondition) return undefined;
  const named = trust ?? (io.env['RON_TRUST'] || undefined);
  // Not ./.ron by default: a directory with a file to verify must not bring its own list.
  const hasDir = values.dir !== undefined || Boolean(io.env['RON_DIR']);
  const path = named ?? (hasDir ? homeOf(values, io).trust : undefined);
  const lines = path === undefined ? undefined : await readTrust(path, named === undefined);
  if (lines === undefined) {
    throw usage(
      { name: 'verify' },
      `Specify the key that you trust: --key, --tenant, --public or --trust. Not verified: the signature names ${kid}`,
    );
  }
  const found = lines.filter(({ pattern }) => covers(pattern, kid));
  if (found.length === 0) throw new CliError('data', `signed by ${kid}, which is not in ${path}`);
  return found;
}

/** The kid is a claim, but one that contradicts the expectation is refused before anything else. */
function requireClaim({ key, tenant }: Values, { kid }: SignatureFile): void {
  if (key !== undefined && splitKid(key) === undefined)
    throw usage(
      { name: 'verify' },
      '--key must be a kid: <tenant>/<purpose>/<alg>/<uuid>, with #v<number> for one version',
    );
  if (key !== undefined && !covers(key, kid)) throw new CliError('data', `signed by ${kid}, not by ${key}`);
  if (tenant !== undefined && splitKid(kid)?.tenant !== tenant)
    throw new CliError('data', `signed by ${kid}, which does not belong to tenant ${tenant}`);
}

/** The algorithms whose signatures the public keys of a line verified; undefined if kms has to decide. */
function verifiedByLine(
  lines: readonly TrustLine[],
  signature: SignatureFile,
  mode: VerifyMode | undefined,
): readonly string[] | undefined {
  const held = keysOfLines(lines, signature.kid);
  const verdicts = held.map((keys) => verifyOffline(signature, keys, mode));
  const good = verdicts.find(({ reason }) => reason === undefined);
  if (good !== undefined) return good.valid;
  if (held.length < lines.length) return undefined;
  throw new CliError('data', `invalid signature: ${verdicts[0]!.reason}`);
}

async function withPublicKeys(
  { io }: VerifyInvocation,
  files: readonly string[],
  signature: SignatureFile,
  mode: VerifyMode | undefined,
): Promise<void> {
  const { valid, reason } = verifyOffline(signature, await readPublicKeys(files), mode);
  if (reason !== undefined) throw new CliError('data', `invalid signature: ${reason}`);
  const { kid } = signature;
  io.result(`valid: signed by the key in ${files.join(' and ')} (${valid.join(', ')}) under the name ${kid}`, {
    ok: true,
    claimed_kid: kid,
    checked: valid.map((alg) => ({ alg, ok: true })),
  });
}

async function withService(
  { values, io, signal }: VerifyInvocation,
  signature: SignatureFile,
  mode: VerifyMode | undefined,
): Promise<void> {
  const { kid, payload_b3, sigs } = signature;
  const { ok, details } = await withKms(values, io, signal, (client) => client.verify({ kid, payload_b3, sigs, mode }));
  if (!ok) throw new CliError('data', `invalid signature: ${details.reason ?? 'no reason given'}`);
  const valid = details.checked.filter((each) => each.ok).map(({ alg }) => alg);
  printValid(io, kid, valid, details.satisfied_mode);
}

function printValid(
  io: VerifyInvocation['io'],
  kid: string,
  algs: readonly string[],
  satisfied_mode?: VerifyMode,
): void {
  const checked = algs.map((alg) => ({ alg, ok: true }));
  io.result(`valid: ${kid} (${algs.join(', ')})`, { ok: true, kid, checked, satisfied_mode });
}

function modeArg(text: string | undefined): VerifyMode | undefined {
  if (text === undefined) return undefined;
  const mode = MODES.find((each) => each === text);
  if (mode !== undefined) return mode;
  throw new CliError('usage', `--mode must be one of ${MODES.join(', ')}, not ${JSON.stringify(text)}`);
}
