/**
 * A self-contained proof that an entry is in a log: the entry, the path to the root, and the signed checkpoint with that
 * root. The JSON form is the one that kms returns.
 *
 * Contract: an accepted proof was signed by all given keys and holds unless SHA-256 is broken; otherwise `audit_integrity`
 * with the reason. Bound: `PROOF_BYTES_MAX`.
 */
import { RonError } from '@ron/kernel';
import { readCheckpoint, type SignedCheckpoint } from '../log/checkpoint-file.ts';
import { fromBase64 } from '../note/checkpoint.ts';
import { leafHash } from '../tree/hash.ts';
import { parseVkey, verifyNote } from '../note/note-key.ts';
import { parseNote } from '../note/note.ts';
import { verifyInclusion } from '../tree/tree.ts';

/** The longest entry in base64, plus the other members. */
export const PROOF_BYTES_MAX = 256 * 1024;

export interface ProvenEntry {
  readonly index: number;
  readonly entry: Uint8Array;
  readonly checkpoint: SignedCheckpoint;
}

/** Parses a checkpoint that all of `vkeys` must have signed. */
export function readSigned(text: string, vkeys: readonly string[]): SignedCheckpoint {
  const keys = vkeys.map(parseVkey);
  const checkpoint = readCheckpoint(Buffer.from(text), undefined, keys);
  const signed = verifyNote(parseNote(checkpoint.text), keys);
  const missing = keys.find((key) => !signed.includes(key));
  if (missing !== undefined) throw refused(`${missing.name} did not sign its checkpoint with all keys`);
  return checkpoint;
}

/** `text`: the JSON of a proof, or of a response that contains one as `proof`. */
export function checkEntryProof(text: string, vkeys: readonly string[]): ProvenEntry {
  const { log_index, tree_size, path_b64, entry_b64, checkpoint: note } = fieldsOf(text);
  const [entry, ...path] = [entry_b64, ...path_b64].map(fromBase64);
  if (entry === undefined || path.some((hash) => hash === undefined)) throw refused('it is not valid base64');
  const checkpoint = readSigned(note, vkeys);
  const { size, root } = checkpoint;
  if (size !== tree_size) throw refused(`it is for a log of ${tree_size} entries, but its checkpoint covers ${size}`);
  const inclusion = { leaf: leafHash(entry), index: log_index, size, path: path as Uint8Array[], root };
  if (!verifyInclusion(inclusion)) throw refused(`it does not lead from entry ${log_index} to the signed root`);
  return { index: log_index, entry, checkpoint };
}

interface ProofFields {
  readonly log_index: number;
  readonly tree_size: number;
  readonly path_b64: readonly string[];
  readonly entry_b64: string;
  readonly checkpoint: string;
}

function fieldsOf(text: string): ProofFields {
  const whole = parsed(text);
  const proof = isObject(whole) && isObject(whole['proof']) ? whole['proof'] : whole;
  if (!isObject(proof)) throw refused('it is not JSON');
  const { log_index, tree_size, path_b64, entry_b64, checkpoint } = proof;
  const isWhole =
    Number.isSafeInteger(log_index) &&
    Number.isSafeInteger(tree_size) &&
    Array.isArray(path_b64) &&
    path_b64.every((each) => typeof each === 'string') &&
    typeof entry_b64 === 'string' &&
    typeof checkpoint === 'string';
  if (!isWhole) throw refused('it lacks log_index, tree_size, path_b64, entry_b64 or checkpoint');
  return proof as unknown as ProofFields;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
const refused = (what: string): RonError => new RonError('audit_integrity', `the proof does not hold: ${what}`);
