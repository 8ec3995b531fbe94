/** The log without witnesses and audits, for services that must start quickly. */
export { leafHash } from '../tree/hash.ts';
export { KeyType, noteSigner, type NoteSigner } from '../note/note-key.ts';
export { TransparencyLog } from './log.ts';
