export * from './algorithms/algorithms.ts';
export * from './backend/backend.ts';
export {
  FileBackend,
  secretRecord,
  SECRETS,
  type FileBackendInit,
  type SecretRecord,
} from './software/file-backend.ts';
export * from './sealed/sealed-file.ts';
export { MemoryBackend, type MemoryBackendInit } from './software/memory-backend.ts';
export * from './software/nonces.ts';
export * from './sealed/open-unlock.ts';
export { requirePublicPart, verifyWith } from './algorithms/public-keys.ts';
export { KEK_BYTES, kekFromText, SCRYPT_COST, type ScryptCost, type Unlock } from './sealed/sealer.ts';
export { CheckThreads, type Check } from './threads/check-threads.ts';
