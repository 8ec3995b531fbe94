/** The log without witnesses and audits, for services that must start quickly. */
export { leafHash } from '../tree/hash.ts';
export { KeyType, noteSigner, type NoteSigner } from '../note/note-key.ts';
export { decodeCheckpoint, type Checkpoint } from '../note/checkpoint.ts';
export { NOTE_BYTES_MAX, parseNote } from '../note/note.ts';
export type { SignedCheckpoint } from './checkpoint-file.ts';
export { openOrigin } from './log-origin.ts';
export { TransparencyLog, type CheckpointRecorder } from './log.ts';
export { encodeMark } from './prune-mark.ts';
export { proveEntry, type EntryProof } from './prove-entry.ts';
export type { KnownCheckpoint } from './recovery.ts';
export { BUNDLE_ENTRIES } from '../tiles/tiles.ts';
