export type { SignedCheckpoint } from './checkpoint-file.ts';
export * from './checkpoint.ts';
export { EMPTY_ROOT, HASH_BYTES, leafHash, nodeHash } from './hash.ts';
export * from './log.ts';
export * from './note-key.ts';
export * from './note.ts';
export * from './tiles.ts';
export * from './tree.ts';
