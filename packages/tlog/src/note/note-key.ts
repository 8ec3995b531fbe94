/**
 * Keys of signed notes: who signs a checkpoint, and how a signature is checked.
 *
 * | type | key        | what is signed                                                          |
 * | ---- | ---------- | ----------------------------------------------------------------------- |
 * | 0x01 | Ed25519    | the text of the note                                                    |
 * | 0x04 | Ed25519    | a witness's `cosignature/v1`: a time and the text                       |
 * | 0x06 | ML-DSA-44  | the `subtree/v1` structure: who, when, which log, how long, which root  |
 *
 * Promise: `verifyNote` accepts a note only if a key it was given signed it, and none of those keys signed it wrongly;
 * signatures of other keys are ignored. Secret keys never come here: a signer is asked for a signature.
 * Bound: one signature is checked for each key and line of the note. Cancellation: a signer gets the signal.
 */
import { createPublicKey, hash, verify, type KeyObject } from 'node:crypto';
import { assert, RonError, sched } from '@ron/kernel';
import { decodeCheckpoint, encodeCheckpoint, fromBase64, type Checkpoint } from './checkpoint.ts';
import { formatNote, isKeyName, type Note, type NoteSignature } from './note.ts';

export const KeyType = { ed25519: 0x01, ed25519Cosignature: 0x04, mlDsa44: 0x06 } as const;
export type KeyType = (typeof KeyType)[keyof typeof KeyType];

/** What stands before the bare key in its DER SubjectPublicKeyInfo. */
const SPKI_PREFIX: Record<KeyType, Buffer> = {
  [KeyType.ed25519]: Buffer.from('302a300506032b6570032100', 'hex'),
  [KeyType.ed25519Cosignature]: Buffer.from('302a300506032b6570032100', 'hex'),
  [KeyType.mlDsa44]: Buffer.from('30820532300b06096086480165030403110382052100', 'hex'),
};
const KEY_BYTES: Record<KeyType, number> = { 0x01: 32, 0x04: 32, 0x06: 1312 };
const TIME_BYTES = 8;

/** Whoever signs checkpoints. The key lies elsewhere. */
export interface NoteSigner {
  readonly vkey: string;
  readonly name: string;
  readonly type: typeof KeyType.ed25519 | typeof KeyType.mlDsa44;
  /** The signature as it stands in the note, without the key id. */
  sign(checkpoint: Checkpoint, signal: AbortSignal): Promise<Uint8Array>;
}

export interface NoteSignerInit {
  /** The key's name; the log's own key is named as its origin. */
  name: string;
  type: NoteSigner['type'];
  /** The public key: DER SubjectPublicKeyInfo. */
  spki: Uint8Array;
  /** Signs the bytes as they are: pure Ed25519, or pure ML-DSA-44 with an empty context. */
  sign(message: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
}

/** A signer out of something that can sign bytes. */
export function noteSigner(init: NoteSignerInit): NoteSigner {
  const { name, type, spki } = init;
  return {
    vkey: formatVkey(name, type, bareKey(type, spki)),
    name,
    type,
    sign: async (checkpoint, signal) => {
      if (type === KeyType.ed25519) return await init.sign(Buffer.from(encodeCheckpoint(checkpoint)), signal);
      const time_s = Math.floor(sched.wall_ms() / 1000);
      const signature = await init.sign(subtreeMessage(name, time_s, checkpoint), signal);
      return Buffer.concat([uint64(time_s), signature]);
    },
  };
}

export interface NoteKey {
  readonly vkey: string;
  readonly name: string;
  readonly key_id: number;
  readonly type: KeyType;
  readonly key: KeyObject;
}

/** A key to check with: `<name>+<key id in hex>+<base64 of type and bare key>`. */
export function parseVkey(vkey: string): NoteKey {
  const [, name = '', id = '', encoded = ''] = /^([^+]+)\+([0-9a-f]{8})\+(\S+)$/.exec(vkey) ?? [];
  const bytes = fromBase64(encoded);
  const type = bytes?.[0] as KeyType | undefined;
  if (!isKeyName(name) || bytes === undefined || type === undefined) throw badKey('it is name+id+key');
  if (!Object.hasOwn(KEY_BYTES, type)) throw badKey(`keys of type ${type} are not known here`);
  const bare = bytes.subarray(1);
  if (bare.length !== KEY_BYTES[type]) throw badKey(`a key of type ${type} has ${KEY_BYTES[type]} bytes`);
  const key_id = keyId(name, type, bare);
  if (key_id !== Number.parseInt(id, 16)) throw badKey('its id is not the one of its name and key');
  const spki = Buffer.concat([SPKI_PREFIX[type], bare]);
  return { vkey, name, key_id, type, key: createPublicKey({ key: spki, format: 'der', type: 'spki' }) };
}

export function formatVkey(name: string, type: KeyType, bare: Uint8Array): string {
  if (!isKeyName(name)) throw badKey('a name is not empty and has no space and no plus');
  const id = keyId(name, type, bare).toString(16).padStart(8, '0');
  return `${name}+${id}+${Buffer.concat([Uint8Array.of(type), bare]).toString('base64')}`;
}

/** Checks a note; the keys that signed it. */
export function verifyNote(note: Note, keys: readonly NoteKey[]): NoteKey[] {
  const signed: NoteKey[] = [];
  for (const line of note.signatures) {
    const key = keys.find((each) => each.name === line.name && each.key_id === line.key_id);
    if (key === undefined || signed.includes(key)) continue;
    if (!isSignedBy(note.text, line.signature, key)) {
      throw new RonError('audit_integrity', `the signature of ${key.name} does not fit the checkpoint`);
    }
    signed.push(key);
  }
  if (signed.length === 0) throw new RonError('audit_integrity', 'the checkpoint is signed by none of the known keys');
  return signed;
}

/** The checkpoint with a signature of each signer. */
export async function signCheckpoint(
  checkpoint: Checkpoint,
  signers: readonly NoteSigner[],
  signal: AbortSignal,
): Promise<string> {
  assert(signers.length > 0, 'somebody signs a checkpoint');
  const text = encodeCheckpoint(checkpoint);
  const signatures = await Promise.all(
    signers.map(async (signer): Promise<NoteSignature> => {
      const { name, key_id } = parseVkey(signer.vkey);
      return { name, key_id, signature: await signer.sign(checkpoint, signal) };
    }),
  );
  return formatNote({ text, signatures });
}

function isSignedBy(text: string, signature: Uint8Array, { name, type, key }: NoteKey): boolean {
  if (type === KeyType.ed25519) return verify(null, Buffer.from(text), key, signature);
  if (signature.length <= TIME_BYTES) return false;
  const time_s = Buffer.from(signature).readBigUInt64BE(0);
  const bare = signature.subarray(TIME_BYTES);
  if (type === KeyType.mlDsa44) return verify(null, subtreeMessage(name, time_s, decodeCheckpoint(text)), key, bare);
  return verify(null, Buffer.from(`cosignature/v1\ntime ${time_s}\n${text}`), key, bare);
}

/** What an ML-DSA-44 key signs: a tree is the subtree that begins at 0. */
export function subtreeMessage(name: string, time_s: number | bigint, { origin, size, root }: Checkpoint): Buffer {
  return Buffer.concat([
    Buffer.from('subtree/v1\n\0'),
    shortText(name),
    uint64(time_s),
    shortText(origin),
    uint64(0),
    uint64(size),
    root,
  ]);
}

function bareKey(type: KeyType, spki: Uint8Array): Uint8Array {
  const bytes = KEY_BYTES[type];
  const prefix = SPKI_PREFIX[type];
  const fits = spki.length === prefix.length + bytes && Buffer.compare(spki.subarray(0, prefix.length), prefix) === 0;
  if (!fits) throw badKey(`it is not the SubjectPublicKeyInfo of a key of type ${type}`);
  return spki.subarray(prefix.length);
}

function keyId(name: string, type: KeyType, bare: Uint8Array): number {
  return hash('sha256', Buffer.concat([Buffer.from(`${name}\n`), Uint8Array.of(type), bare]), 'buffer').readUInt32BE(0);
}

function shortText(text: string): Buffer {
  const bytes = Buffer.from(text);
  if (bytes.length === 0 || bytes.length > 255) throw badKey('names that are signed have 1 to 255 bytes');
  return Buffer.concat([Uint8Array.of(bytes.length), bytes]);
}

function uint64(value: number | bigint): Buffer {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

const badKey = (what: string): RonError => new RonError('validation', `not a key for signed notes: ${what}`);
