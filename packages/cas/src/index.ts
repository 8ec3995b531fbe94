export * from './compactor.ts';
export { CompletenessGuard, notComplete } from './completeness.ts';
export * from './evicting-store.ts';
export * from './id-filter.ts';
export * from './id-set.ts';
export type { JournalScrub } from './journal-scrub.ts';
export * from './leases.ts';
export * from './local-volume.ts';
export * from './manifest.ts';
export * from './memory-volume.ts';
export type { JournalPlace, JournalPlaces } from './mirrored-journal.ts';
export * from './object-store.ts';
export * from './object-writer.ts';
export type { Applied, Place, Table } from './index/entry.ts';
export { memoryFiles } from './index/memory-files.ts';
export { PlaceIndex } from './index/place-index.ts';
export { RunIndex } from './index/run-index.ts';
export { MEDIA_TYPE_DEFAULT, type FinishInit, type ObjectPlace, type Written } from './put-object.ts';
export * from './record-types.ts';
export { reserveBytes } from './reserve.ts';
export * from './stored-object.ts';
export * from './stripe.ts';
export {
  isVolumeId,
  legacyVolumeId,
  newVolumeId,
  readSuperblock,
  writeSuperblock,
  type Superblock,
} from './superblock.ts';
export { type UploadStatus } from './upload.ts';
export * from './uploads.ts';
export * from './volume.ts';
export { noteId } from './volume-identity.ts';
