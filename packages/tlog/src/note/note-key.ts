/**
 * Keys of signed notes: signing and verification of checkpoints.
 *
 * | type | key        | signed message                                                          |
 * | ---- | ---------- | ----------------------------------------------------------------------- |
 * | 0x01 | Ed25519    | the text of the note                                                    |
 * | 0x04 | Ed25519    | a witness's `cosignature/v1`: a time and the text                       |
 * | 0x06 | ML-DSA-44  | the `subtree/v1` structure: signer, time, log, size and root            |
 *
 * Contract: `verifyNote` accepts a note only if one of the given keys signed it and none of them has an invalid signature on
 * it; signatures of other keys are ignored. Private keys are not handled here: a `NoteSigner` makes the signature.
 * Bound: one verification per key and signature line. Cancellation: a signer gets the signal.
 */
import { createPublicKey, hash, verify, type KeyObject } from 'node:crypto';
import { assert, RonError, sched } from '@ron/kernel';
import { decodeCheckpoint, encodeCheckpoint, fromBase64, type Checkpoint } from './checkpoint.ts';
import { formatNote, isKeyName, type Note, type NoteSignature } from './note.ts';

export const KeyType = { ed25519: 0x01, ed25519Cosignature: 0x04, mlDsa44: 0x06 } as const;
export type KeyType = (typeof KeyType)[keyof typeof KeyType];

/** The DER prefix of the bare key in its SubjectPublicKeyInfo. */
const SPKI_PREFIX: Record<KeyType, Buffer> = {
  [KeyType.ed25519]: Buffer.from('302a300506032b6570032100', 'hex'),
  [KeyType.ed25519Cosignature]: Buffer.from('302a300506032b6570032100', 'hex'),
  [KeyType.mlDsa44]: Buffer.from('30820532300b06096086480165030403110382052100', 'hex'),
};
const KEY_BYTES: Record<KeyType, number> = { 0x01: 32, 0x04: 32, 0x06: 1312 };
const TIME_BYTES = 8;

/** Signs checkpoints with a key that is stored elsewhere. */
export interface NoteSigner {
  readonly vkey: string;
  readonly name: string;
  readonly type: typeof KeyType.ed25519 | typeof KeyType.mlDsa44;
  /** Returns the signature as written in the note, without the key id. */
  sign(checkpoint: Checkpoint, signal: AbortSignal): Promise<Uint8Array>;
}

export interface NoteSignerInit {
  /** The key's name. The log's own key has its origin as the name. */
  name: string;
  type: NoteSigner['type'];
  /** The public key: DER SubjectPublicKeyInfo. */
  spki: Uint8Array;
  /** Signs exactly these bytes: pure Ed25519, or pure ML-DSA-44 with an empty context. */
  sign(message: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
}

/** Makes a note signer from a function that signs bytes. */
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

/** Parses a verification key: `<name>+<key id in hex>+<base64 of type and bare key>`. */
export function parseVkey(vkey: string): NoteKey {
  const [, name = '', id = '', encoded = ''] = /^([^+]+)\+([0-9a-f]{8})\+(\S+)$/.exec(vkey) ?? [];
  const bytes = fromBase64(encoded);
  const type = bytes?.[0] as KeyType | undefined;
  if (!isKeyName(name) || bytes === undefined || type === undefined) throw badKey('it must have the form name+id+key');
  if (!Object.hasOwn(KEY_BYTES, type)) throw badKey(`the key type ${type} is not supported`);
  const bare = bytes.subarray(1);
  if (bare.length !== KEY_BYTES[type]) throw badKey(`a key of type ${type} must have ${KEY_BYTES[type]} bytes`);
  const key_id = keyId(name, type, bare);
  if (key_id !== Number.parseInt(id, 16)) throw badKey('its id does not match its name and key');
  const spki = Buffer.concat([SPKI_PREFIX[type], bare]);
  return { vkey, name, key_id, type, key: createPublicKey({ key: spki, format: 'der', type: 'spki' }) };
}

export function formatVkey(name: string, type: KeyType, bare: Uint8Array): string {
  if (!isKeyName(name)) throw badKey('a name must not be empty or contain spaces or plus signs');
  const id = keyId(name, type, bare).toString(16).padStart(8, '0');
  return `${name}+${id}+${Buffer.concat([Uint8Array.of(type), bare]).toString('base64')}`;
}

/** The same key under another name. */
export function renamedVkey(vkey: string, name: string): string {
  parseVkey(vkey);
  const bytes = fromBase64(vkey.slice(vkey.indexOf('+', vkey.indexOf('+') + 1) + 1))!;
  return formatVkey(name, bytes[0] as KeyType, bytes.subarray(1));
}

/** Verifies a note. Returns the keys that signed it. */
export function verifyNote(note: Note, keys: readonly NoteKey[]): NoteKey[] {
  const signed: NoteKey[] = [];
  for (const line of note.signatures) {
    const key = keys.find((each) => each.name === line.name && each.key_id === line.key_id);
    if (key === undefined || signed.includes(key)) continue;
    if (!isSignedBy(note.text, line.signature, key)) {
      throw new RonError('audit_integrity', `the signature of ${key.name} does not match the checkpoint`);
    }
    signed.push(key);
  }
  if (signed.length === 0) throw new RonError('audit_integrity', 'the checkpoint is not signed by a known key');
  return signed;
}

/** Signs a checkpoint with every signer. */
export async function signCheckpoint(
  checkpoint: Checkpoint,
  signers: readonly NoteSigner[],
  signal: AbortSignal,
): Promise<string> {
  assert(signers.length > 0, 'a checkpoint has at least one signer');
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

/** The message that an ML-DSA-44 key signs. A whole tree is the subtree that begins at 0. */
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
  if (!fits) throw badKey(`it must be the SubjectPublicKeyInfo of a key of type ${type}`);
  return spki.subarray(prefix.length);
}

function keyId(name: string, type: KeyType, bare: Uint8Array): number {
  return hash('sha256', Buffer.concat([Buffer.from(`${name}\n`), Uint8Array.of(type), bare]), 'buffer').readUInt32BE(0);
}

function shortText(text: string): Buffer {
  const bytes = Buffer.from(text);
  if (bytes.length === 0 || bytes.length > 255) throw badKey('a signed name must have 1 to 255 bytes');
  return Buffer.concat([Uint8Array.of(bytes.length), bytes]);
}

function uint64(value: number | bigint): Buffer {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

const badKey = (what: string): RonError => new RonError('validation', `not a key for signed notes: ${what}`);
