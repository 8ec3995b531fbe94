export * from './record-store.ts';
export * from './memory-store.ts';
export * from './table.ts';
export { LmdbStore, type LmdbStoreInit } from './lmdb-store.ts';
export * from './rekey.ts';
