/**
 * `ron receipt verify`: without a node and without a network.
 *
 * Contract: only the keys that the user gives are trusted, and each of them must have signed. Lines of a trust file count if
 * they cover the kid and have public keys. The file must have one reading: a duplicate key, a number such as `1.0`, and any
 * other text that a parser could read in another way, is refused.
 * Bound: `FILE_BYTES_MAX` of a receipt; a body is hashed as a stream.
 */
import { verify } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { checkReceipt, type BodyFacts, type ReceiptKey } from '@ron/client/webhook-receipt';
import type { ReceiptInvocation } from '../commands/receipt.ts';
import { usage } from '../args.ts';
import { CliError } from '../exits.ts';
import { addressOfFile } from '../input-file.ts';
import { readPublicKeys, requireDistinct, type VerificationKey } from '../verify/public-keys.ts';
import { readText } from '../verify/read-text.ts';
import { covers, readTrust } from '../verify/trust-file.ts';

const FILE_BYTES_MAX = 256 * 1024;

export async function verifyReceipt({ values, io, signal }: ReceiptInvocation, path: string): Promise<void> {
  const { key: files, body } = values;
  if (files === undefined) throw usage({ name: 'receipt' }, 'specify the key that you trust: --key FILE');
  const value = await readReceipt(path);
  const keys = await readKeys(files, kidIn(value));
  const facts = body === undefined ? undefined : await factsOf(body, signal);
  const check = await checkReceipt(value, {
    keys: keys.map(receiptKey),
    // ML-DSA of WebCrypto is experimental in Node, and prints a warning.
    verify: async ({ alg }, message, signature) =>
      verify(null, message, keys.find((each) => each.alg === alg)!.key, signature),
    ...(facts !== undefined && { body: facts }),
  });
  if (!check.ok) throw new CliError('data', `${path} is not a valid receipt (${check.fault}): ${check.detail}`);
  const { receipt, kid, algs, root, has_body } = check.facts;
  const unchecked = ['log_index', 'log_proof'].filter((name) => Object.hasOwn(value as object, name));
  const time = new Date(receipt.received_ms).toISOString();
  const lines = [
    `valid: signed by the key in ${files.join(' and ')} (${algs.join(', ')}) under the name ${kid}`,
    `${receipt.provider} ${receipt.delivery_id ?? receipt.id}: ${receipt.bytes} bytes, received ${time} for ${receipt.topic}`,
    has_body ? `${body} is the received body` : `body ${receipt.b3}: not compared, use --body FILE`,
    ...(unchecked.length === 0
      ? []
      : ['not checked: its place in the log of kms, which no signature of the receipt covers']),
  ];
  io.result(lines.join('\n'), { ok: true, claimed_kid: kid, algs, root, receipt, body: has_body, unchecked });
}

async function readReceipt(path: string): Promise<unknown> {
  const text = await readText(path, FILE_BYTES_MAX);
  const value = parsed(path, text);
  if (JSON.stringify(value) === text.replace(TOKEN, withoutSpace)) return value;
  const why = 'a duplicate key, or a number or a text in another spelling, could be read as another receipt';
  throw new CliError('data', `${path} is ambiguous: ${why}; fetch it again with \`ron receipt get\``);
}

/** A text in quotes, or white space between such texts. */
const TOKEN = /"(?:[^"\\]|\\.)*"|[ \t\r\n]+/g;
const withoutSpace = (token: string): string => (token.startsWith('"') ? token : '');

function parsed(path: string, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new CliError('data', `${path} is not a receipt of \`ron receipt get\``);
  }
}

/** A claim: it only selects lines of a trust file. */
function kidIn(value: unknown): string {
  const { kid } = (value ?? {}) as { readonly kid?: unknown };
  return typeof kid === 'string' ? kid : '';
}

async function readKeys(files: readonly string[], kid: string): Promise<VerificationKey[]> {
  const keys: VerificationKey[] = [];
  for (const file of files) {
    const text = await readText(file, FILE_BYTES_MAX);
    const isKeyFile = text.trimStart().startsWith('{') || text.includes('-----BEGIN ');
    keys.push(...(isKeyFile ? await readPublicKeys([file]) : await trustedKeys(file, kid)));
  }
  requireDistinct(keys, files.join(', '));
  return keys;
}

async function trustedKeys(file: string, kid: string): Promise<readonly VerificationKey[]> {
  const lines = (await readTrust(file, false)) ?? [];
  const line = lines.find(({ pattern, keys }) => keys.length > 0 && covers(pattern, kid));
  if (line === undefined) throw new CliError('data', `signed by ${kid}, for which ${file} has no public key`);
  return line.keys;
}

async function factsOf(path: string, signal: AbortSignal): Promise<BodyFacts> {
  const b3 = await addressOfFile(path, signal);
  return { b3, bytes: (await stat(path)).size };
}

function receiptKey({ alg, key }: VerificationKey): ReceiptKey {
  return { alg, spki: Uint8Array.from(key.export({ type: 'spki', format: 'der' })) };
}
