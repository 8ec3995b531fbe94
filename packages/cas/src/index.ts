export * from './compaction/compactor.ts';
export { CompletenessGuard, notComplete } from './compaction/completeness.ts';
export * from './objects/evicting-store.ts';
export * from './compaction/id-filter.ts';
export * from './compaction/id-set.ts';
export type { JournalScrub } from './uploads/journal-scrub.ts';
export * from './objects/leases.ts';
export * from './volume/local-volume.ts';
export * from './objects/manifest.ts';
export * from './volume/memory-volume.ts';
export type { JournalPlace, JournalPlaces } from './uploads/mirrored-journal.ts';
export * from './objects/object-store.ts';
export * from './objects/object-writer.ts';
export type { Applied, Place, Table } from './index/entry.ts';
export { memoryFiles } from './index/memory-files.ts';
export { PlaceIndex } from './index/place-index.ts';
export { RunIndex } from './index/run-index.ts';
export { MEDIA_TYPE_DEFAULT, type FinishInit, type ObjectPlace, type Written } from './objects/put-object.ts';
export * from './volume/record-types.ts';
export { reserveBytes } from './volume/reserve.ts';
export * from './objects/stored-object.ts';
export * from './volume/stripe.ts';
export {
  isVolumeId,
  legacyVolumeId,
  newVolumeId,
  readSuperblock,
  writeSuperblock,
  type Superblock,
} from './volume/superblock.ts';
export { type UploadStatus } from './uploads/upload.ts';
export * from './uploads/uploads.ts';
export * from './volume/volume.ts';
export { noteId } from './volume/volume-identity.ts';
