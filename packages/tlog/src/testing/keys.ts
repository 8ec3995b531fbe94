/** Signers with keys in memory. */
import { generateKeyPairSync, sign } from 'node:crypto';
import { KeyType, noteSigner, type NoteSigner } from '../note/note-key.ts';

/** A signer with a new key. */
export function memorySigner(name: string, type: NoteSigner['type'] = KeyType.ed25519): NoteSigner {
  const { publicKey, privateKey } =
    type === KeyType.ed25519 ? generateKeyPairSync('ed25519') : generateKeyPairSync('ml-dsa-44');
  return noteSigner({
    name,
    type,
    spki: publicKey.export({ format: 'der', type: 'spki' }),
    sign: async (message) => sign(null, message, privateKey),
  });
}
