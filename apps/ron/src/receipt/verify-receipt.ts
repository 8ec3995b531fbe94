/**
 * `ron receipt verify`: without a node and without a network.
 *
 * Contract: only the keys that the user gives are trusted, and each of them must have signed. Of a trust file, one line is enough
 * that covers the kid and has public keys: each of them is tried. The file must have one reading: bytes that are not UTF-8, a
 * duplicate key, a number such as `1.0`, and any other text that a parser could read in another way, is refused. No text of the
 * file can print a line of its own.
 * Bound: `FILE_BYTES_MAX` of a receipt; `CHOICES_MAX` combinations of lines; a body is hashed as a stream.
 */
import { verify } from 'node:crypto';
import { checkReceipt, type BodyFacts, type ReceiptCheck, type ReceiptKey } from '@ron/client/webhook-receipt';
import type { ReceiptInvocation } from '../commands/receipt.ts';
import { usage } from '../args.ts';
import { CliError } from '../exits.ts';
import { hashFile } from '../input-file.ts';
import { oneLine } from '../printable.ts';
import { readPublicKeys, type VerificationKey } from '../verify/public-keys.ts';
import { readText, readUtf8 } from '../verify/read-text.ts';
import { keysOfLines, readTrust } from '../verify/trust-file.ts';

const FILE_BYTES_MAX = 256 * 1024;
const CHOICES_MAX = 4096;

/** The keys that must have signed, all of them. */
type Keys = readonly VerificationKey[];

export async function verifyReceipt({ values, io, signal }: ReceiptInvocation, path: string): Promise<void> {
  const { key: files, body } = values;
  if (files === undefined) throw usage({ name: 'receipt' }, 'specify the key that you trust: --key FILE');
  const value = await readReceipt(path);
  const choices = await readChoices(files, kidIn(value));
  const facts = body === undefined ? undefined : await hashFile(body, signal);
  const check = await checkByOne(value, choices, facts);
  if (!check.ok)
    throw new CliError('data', oneLine(`${path} is not a valid receipt (${check.fault}): ${check.detail}`));
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
  io.result(lines.map(oneLine).join('\n'), {
    ok: true,
    claimed_kid: kid,
    algs,
    root,
    receipt,
    body: has_body,
    unchecked,
  });
}

/** The check with the first choice of keys that is valid; the refusal of the first choice if none is. */
async function checkByOne(
  value: unknown,
  choices: readonly Keys[],
  facts: BodyFacts | undefined,
): Promise<ReceiptCheck> {
  let refusal: ReceiptCheck | undefined;
  for (const keys of choices) {
    const check = await checkReceipt(value, {
      keys: keys.map(receiptKey),
      // ML-DSA of WebCrypto is experimental in Node, and prints a warning.
      verify: async ({ alg }, message, signature) =>
        verify(null, message, keys.find((each) => each.alg === alg)!.key, signature),
      ...(facts !== undefined && { body: facts }),
    });
    if (check.ok) return check;
    refusal ??= check;
  }
  return refusal!;
}

async function readReceipt(path: string): Promise<unknown> {
  const text = await readUtf8(path, FILE_BYTES_MAX);
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

/** Each combination of one choice per file. At least one. */
async function readChoices(files: readonly string[], kid: string): Promise<readonly Keys[]> {
  let choices: readonly Keys[] = [[]];
  for (const file of files) {
    const text = await readText(file, FILE_BYTES_MAX);
    const isKeyFile = text.trimStart().startsWith('{') || text.includes('-----BEGIN ');
    const own = isKeyFile ? [await readPublicKeys([file])] : await trustedKeys(file, kid);
    if (choices.length * own.length > CHOICES_MAX)
      throw new CliError('data', `${files.join(', ')}: more than ${CHOICES_MAX} combinations of lines cover the key`);
    choices = choices.flatMap((before) => own.map((keys) => [...before, ...keys]));
  }
  return choices;
}

async function trustedKeys(file: string, kid: string): Promise<readonly Keys[]> {
  const found = keysOfLines((await readTrust(file, false)) ?? [], kid);
  if (found.length === 0) throw new CliError('data', oneLine(`signed by ${kid}, for which ${file} has no public key`));
  return found;
}

function receiptKey({ alg, key }: VerificationKey): ReceiptKey {
  return { alg, spki: Uint8Array.from(key.export({ type: 'spki', format: 'der' })) };
}
