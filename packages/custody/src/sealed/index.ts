/** Sealed files without the key backends, for services that only store secrets. */
export * from './ed25519-key.ts';
export * from './sealed-file.ts';
export * from './open-unlock.ts';
export { resealFile, type ResealInit } from './reseal-file.ts';
export { serviceKek } from './service-kek.ts';
export { KEK_BYTES, kekFromText, type Unlock } from './sealer.ts';
