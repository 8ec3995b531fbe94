export * from './compactor.ts';
export * from './id-set.ts';
export * from './leases.ts';
export * from './local-volume.ts';
export * from './manifest.ts';
export * from './memory-store.ts';
export * from './memory-volume.ts';
export type { JournalPlace, JournalPlaces } from './mirrored-journal.ts';
export * from './object-store.ts';
export * from './object-writer.ts';
export * from './place-index.ts';
export { MEDIA_TYPE_DEFAULT, type FinishInit, type ObjectPlace, type Written } from './put-object.ts';
export * from './ram-cache.ts';
export * from './record-types.ts';
export { reserveBytes } from './reserve.ts';
export * from './single-flight.ts';
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
