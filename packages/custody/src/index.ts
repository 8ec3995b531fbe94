export * from './algorithms.ts';
export * from './backend.ts';
export { FileBackend, type FileBackendInit } from './file-backend.ts';
export * from './keystore.ts';
export { MemoryBackend, type MemoryBackendInit } from './memory-backend.ts';
export * from './nonces.ts';
export { Pkcs11Backend, type Pkcs11BackendInit } from './pkcs11-backend.ts';
export { requirePublicPart, verifyWith } from './public-keys.ts';
export { KEK_BYTES, kekFromText, SCRYPT_COST, type ScryptCost, type Unlock } from './sealer.ts';
