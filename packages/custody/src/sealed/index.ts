/** Sealed files by themselves, for services that keep a secret and hold no keys of others. */
export * from './sealed-file.ts';
export * from './open-unlock.ts';
export { KEK_BYTES, kekFromText, type Unlock } from './sealer.ts';
